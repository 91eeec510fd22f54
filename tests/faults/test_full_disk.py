"""A full disk under a home: what only reads goes on, `rm` frees space, and what must be written is refused clearly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sbx import Result, Sbx

pytestmark = pytest.mark.long

# A process that may make no file larger meets the same refusals as one on a full disk, and needs no rights for it.
_ON_A_FULL_DISK = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
os.execv(sys.executable, [sys.executable, "-m", "sbxtui", *sys.argv[1:]])
"""


def on_a_full_disk(sbx: Sbx, *words: str) -> Result:
    """Run a line that cannot write a byte to any file; what serves the home already is not affected."""
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_FULL_DISK, *words],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        env=sbx.environment(),
        cwd=sbx.home,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ls", "--json"), '"name": "app"'),
        (("ps", "app"), "running"),
        (("inspect", "app"), '"state": "RUNNING"'),
        (("exec", "app", "--", "echo", "still here"), "still here"),
        (("events", "app"), "sandbox.tracked"),
        (("context", "ls"), "local"),
    ],
)
def test_what_only_reads_goes_on(sbx: Sbx, app: str, words: tuple[str, ...], told: str) -> None:
    result = on_a_full_disk(sbx, *words)
    assert (result.code, told in result.out) == (0, True), result.err


def test_a_command_whose_token_cannot_be_kept_runs_and_says_so(sbx: Sbx, app: str) -> None:
    sbx.ok("stop", app)
    result = on_a_full_disk(sbx, "start", app)
    assert result.code == 0, result.err
    assert "not written down: an event" in result.err


def test_a_launch_that_cannot_be_written_down_is_refused_and_nothing_is_made(sbx: Sbx, app: str) -> None:
    result = on_a_full_disk(sbx, "--json", "create", "new", "-m", "512")
    assert (result.code, result.error["code"]) == (1, "store_unwritable")
    assert "cannot write the store" in result.error["message"]
    assert [row["name"] for row in sbx.ok("ls", "--json").json] == [app]


def test_removing_ends_the_sandbox_and_tells_that_its_name_stays(sbx: Sbx) -> None:
    sandbox_id = sbx.ok("create", "heavy", "-m", "512", "--json").json["id"]
    result = on_a_full_disk(sbx, "rm", "heavy", "--yes")
    assert (result.code, result.out) == (0, "heavy")
    assert "its name stays" in result.err
    states = {row["id"]: row["state"] for row in sbx.ok("ls", "--all", "--json").json}
    assert states[sandbox_id] == "TERMINATED"
    assert sbx.ok("prune", "--yes").out == "heavy"


# In a mount namespace of its own the small disk goes away with the process, whatever happens. It holds all of the home
# and the sandboxes' files too; sockets lie elsewhere.
_SMALL_DISK = """
set -e
mount -t tmpfs -o size=64m none "$SBX_HOME"
mkdir -p "$SBX_HOME/trees" /var/lib/sbx
mount --bind "$SBX_HOME/trees" /var/lib/sbx
sbx() { python -m sbxtui "$@"; }
end() { rm -f "$SBX_HOME"/filler*; sbx local reset --yes >/dev/null; }
trap end EXIT
sbx create heavy -m 512 >/dev/null
sbx create light -m 512 >/dev/null
sbx exec heavy -- sh -c 'head -c 4000000 /dev/zero > /work/big'
$BEFORE
dd if=/dev/zero of="$SBX_HOME/filler1" bs=64k 2>/dev/null || true
dd if=/dev/zero of="$SBX_HOME/filler2" bs=1k 2>/dev/null || true
set +e
sbx ls -q --sort name; echo "ls $?"
sbx exec light -- echo answers; echo "exec $?"
sbx --json create more -m 512; echo "create $?"
sbx rm heavy --yes; echo "rm $?"
sbx create more -m 512; echo "create $?"
sbx ls -q --sort name; echo "ls $?"
dd if=/dev/zero of="$SBX_HOME/filler3" bs=1k 2>/dev/null
sbx local reset --yes | wc -l; echo "reset $?"
sbx ls -q --all; echo "ls $?"
"""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("before", [":", "sbx local stop"], ids=["the cloud serves", "the cloud has to start"])
def test_on_a_full_disk_removing_a_sandbox_makes_room_for_another(tmp_path: Path, before: str) -> None:
    home = tmp_path / "small"
    home.mkdir()
    python = Path(sys.executable).parent
    env = {**Sbx(home).environment(), "PATH": f"{python}:{os.environ['PATH']}"}
    script = _SMALL_DISK.replace("$BEFORE", before)
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script], env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout.split("\n")[:-1] == [
        *("heavy", "light", "ls 0"),
        *("answers", "exec 0"),
        "create 1",
        *("heavy", "rm 0"),
        *("more", "create 0"),
        *("light", "more", "ls 0"),
        *("2", "reset 0"),
        "ls 0",
    ], done.stderr
    assert '"store_unwritable"' in done.stderr
    assert "Traceback" not in done.stderr
