"""Roots of sandboxes' own: a build's step writes anywhere, others stand on what it left, and nobody writes below."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sbxtui.localcloud.copies import COPY_FOLDER, copy_again, find_copy
from sbxtui.localcloud.ownroot import LAYERS, MAX_LAYERS, UPPER, layers_of, seal
from sbxtui.localcloud.runtimes.idmap import SHOW_MODULE
from sbxtui.localcloud.spec import SandboxSpec
from tests.support.sandboxes import Place, RunningSandbox, make_place, processes_naming, require_own_root, running

# Of this machine's own system, whatever it is.
OF_HOST = next(path for path in sorted(Path("/usr/bin").iterdir()) if path.is_file() and not path.is_symlink())


@pytest.fixture(scope="module")
def own(images_dir: Path) -> Iterator[Place]:
    """A place of sandboxes with roots of their own."""
    require_own_root(images_dir)
    with make_place(images_dir) as place:
        yield place


@asynccontextmanager
async def step(place: Place, name: str, before: Path | None, *, is_build: bool = True) -> AsyncIterator[RunningSandbox]:
    """A sandbox that goes on from a copy."""
    spec = place.spec(name, is_build=is_build)
    if before is not None:
        copy = find_copy(before)
        assert copy is not None
        await asyncio.to_thread(copy_again, copy, spec.sandbox_dir / COPY_FOLDER)
    async with running(spec) as sandbox:
        yield sandbox


async def done(sandbox: RunningSandbox, shell: str) -> str:
    """What a shell line that succeeds said."""
    ran = await sandbox.run(shell)
    assert ran.code == 0, ran
    return ran.out


async def layer(place: Place, name: str, before: Path | None, shell: str) -> Path:
    """The layer that a step of a build leaves."""
    target = place.root / "t" / f"copy-of-{name}"
    async with step(place, name, before) as sandbox:
        await done(sandbox, shell)
        await sandbox.keeper.copy(target)
    seal(target)
    return target


def _left(spec: SandboxSpec) -> list[str]:
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if spec.sandbox_id in line]
    files = [path.name for path in spec.sandbox_dir.iterdir() if path.name in ("root", "rootwork", LAYERS)]
    return mounts + files + [str(pid) for pid in processes_naming(str(spec.sandbox_dir))]


@pytest.mark.long
async def test_layers_of_a_build_are_what_sandboxes_stand_on_and_nobody_writes_below(own: Place) -> None:
    first = await layer(
        own,
        "first",
        None,
        f"test $(id -u) = 0 && echo tool > /usr/bin/tool && rm {OF_HOST} && mkdir -p /opt/a/b && touch /opt/a/b/old"
        " && chown 33:33 /opt/a && useradd -M someone && echo root > /etc/motd && mkdir -m 700 /srv/closed"
        " && echo private > /srv/closed/file && chmod 600 /srv/closed/file && echo kept > /tmp/file",
    )
    second = await layer(
        own, "second", first, "rm -r /opt/a/b && mkdir /opt/a/b && touch /opt/a/b/new && echo more >> /usr/bin/tool"
    )
    assert len(layers_of(second)) == 2
    seen = (
        f"id -u; cat /usr/bin/tool /srv/closed/file /tmp/file; ls /opt/a/b; ls {OF_HOST} 2>/dev/null; grep -c someone "
        "/etc/passwd"
    )
    async with step(own, "run", second, is_build=False) as one, step(own, "next", second, is_build=False) as other:
        for sandbox in (one, other):
            out = (await done(sandbox, seen)).split()
            assert out == ["1000", "tool", "more", "private", "kept", "new", "1"]
        await done(one, "echo mine > /usr/bin/mine; echo changed > /usr/bin/tool; rm -r /opt/a; echo x > /tmp/file")
        assert (await done(other, "cat /usr/bin/tool /tmp/file; ls /opt/a")).split() == ["tool", "more", "kept", "b"]
        assert (await other.run("ls /usr/bin/mine")).code != 0
        fork = own.root / "t" / "fork"
        await one.keeper.copy(fork)
    async with step(own, "forked", fork, is_build=False) as sandbox:
        assert (await done(sandbox, "cat /usr/bin/mine /usr/bin/tool; ls /opt")).split() == ["mine", "changed", "sbx"]
    assert OF_HOST.exists() and not Path("/usr/bin/tool").exists()
    assert "more" not in (layers_of(second)[0] / "usr" / "bin" / "tool").read_text()
    for name in ("first", "second", "run", "next", "forked"):
        assert _left(own.spec(name)) == [], name


@pytest.mark.long
async def test_what_is_written_into_the_root_counts_as_disk(own: Place) -> None:
    spec = own.spec("full", disk_mib=24)
    (spec.sandbox_dir / LAYERS).mkdir(parents=True)
    async with running(spec) as sandbox:
        fill = "while :; do head -c 1M /dev/zero >&3; done"
        held = await sandbox.run(f"exec 3> /usr/share/deleted; rm /usr/share/deleted; {fill}")
        assert held.code == 128 + signal.SIGKILL, held
        status = await sandbox.keeper.status()
        assert [kill.limit for kill in status.kills] == ["disk"]
        named = await sandbox.run("while :; do head -c 1M /dev/zero >> /opt/file; done")
        assert named.code == 128 + signal.SIGKILL, named


@pytest.mark.long
async def test_a_killed_keeper_leaves_no_mount_file_or_process(own: Place) -> None:
    spec = own.spec("killed", is_build=True)
    async with running(spec) as sandbox:
        await done(sandbox, "mkdir /opt/x; rm -r /usr/share/doc; touch /etc/x; (sleep 300 &)")
        os.kill((await sandbox.keeper.status()).pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while _left(spec):
                await asyncio.to_thread(own.sweep)
                await asyncio.sleep(0.05)


def test_behind_many_layers_what_was_written_is_no_further_one(tmp_path: Path) -> None:
    for number in range(MAX_LAYERS + 2):
        (tmp_path / UPPER).mkdir()
        seal(tmp_path)
        assert len(layers_of(tmp_path)) == min(number + 1, MAX_LAYERS)
        if (tmp_path / UPPER).is_dir():
            (tmp_path / UPPER).rmdir()


def test_what_cannot_be_shown_is_said_by_a_program_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", SHOW_MODULE, str(tmp_path / "none"), "1", "2", "/bin/true"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "cannot be shown" in ran.stderr
