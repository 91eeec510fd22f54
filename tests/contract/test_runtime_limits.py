"""What asks for twice its limit is stopped, and the sandbox answers again: as root by cgroups, as a user without
any.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from sbxtui.core.errors import SbxError
from sbxtui.core.kills import Kill
from sbxtui.localcloud.keeper_processes import descendants
from sbxtui.localcloud.spec import SandboxSpec
from tests.support.sandboxes import Place, Ran, RunningSandbox, require_runtime, running

pytestmark = pytest.mark.long

ANSWERS_AGAIN_S = 20.0
# Twice the disk fits into the memory, for what is written may count as that, too.
MEMORY_MIB, PIDS, TMPFS_MIB, DISK_MIB = 384, 64, 64, 128

FORK_BOMB = """python3 -c '
import os, time
while True:
    try: os.fork()
    except OSError: time.sleep(0.01)'"""
FORK_BOMB_OF_SESSIONS = """python3 -c '
import os, time
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: time.sleep(0.01)'"""


NAMELESS_FILES = f"""
import tempfile, time
files = [tempfile.TemporaryFile(dir=".") for _ in range({2 * DISK_MIB // 8})]
for file in files: file.write(bytes(8 << 20)); file.flush()
time.sleep(20)"""


EMPTY_FILES = """python3 -c '
import os
for folder in range(60):
    os.mkdir(str(folder))
    for file in range(1000): os.close(os.open(f"{folder}/{file}", os.O_CREAT))'; sleep 20"""


@dataclass(frozen=True, slots=True)
class Hog:
    """A shell line that takes twice a limit, and which limit stops it."""

    name: str
    limit: str
    shell: str


HOGS = (
    Hog("one process", "memory", f"python3 -c 'b = [bytearray(1 << 20) for _ in range({2 * MEMORY_MIB})]'"),
    # All there at once, however slow the machine: a process in the background that reads reads nothing, and ends.
    Hog(
        "many processes",
        "memory",
        "for i in 1 2 3 4 5; do python3 -c 'import time; b = bytearray(110 << 20); time.sleep(90)' & done; wait",
    ),
    Hog("fork bomb", "pids", FORK_BOMB),
    Hog("fork bomb of sessions", "pids", FORK_BOMB_OF_SESSIONS),
    Hog(
        "many files",
        "disk",
        f"for i in $(seq {2 * DISK_MIB // 8}); do head -c 8M /dev/zero > f$i || exit; done; sleep 20",
    ),
    Hog("the control folder", "disk", "head -c 40M /dev/zero > /run/sbx/hog; sleep 20"),
    Hog("files without a name", "disk", f"python3 -c '{NAMELESS_FILES}'"),
)
# There a disk has an end, and what would go over it is told so.
FULL_ON_GVISOR = ("many files", "files without a name")
NOT_ON_GVISOR = {"the control folder": "jobs cannot write there at all"} | dict.fromkeys(
    FULL_ON_GVISOR, "no space is left on its disk, and nothing is killed"
)


@dataclass(frozen=True, slots=True)
class Limited:
    """Makes sandboxes of one runtime."""

    place: Place
    runtime: str

    def spec(self, **changes: Any) -> SandboxSpec:
        """As `Place.spec`."""
        return self.place.spec(runtime=self.runtime, **changes)


@pytest.fixture(params=("gvisor", "bubblewrap"))
def limited(request: pytest.FixtureRequest, place: Place) -> Limited:
    """Sandboxes of each runtime that isolates; skips where it does not work."""
    require_runtime(request.param, place.images_dir)
    return Limited(place, request.param)


@pytest.fixture
def namespaces(place: Place) -> Limited:
    """Sandboxes whose processes the host sees."""
    require_runtime("bubblewrap", place.images_dir)
    return Limited(place, "bubblewrap")


async def _answers(sandbox: RunningSandbox) -> Ran:
    """Run a job, trying again while the sandbox recovers."""
    while True:
        try:
            ran = await sandbox.run("echo ok")
            if ran.code == 0:
                return ran
        except (AssertionError, OSError, ValueError, SbxError):
            await asyncio.sleep(0.05)


@pytest.mark.user
@pytest.mark.timeout(600)
async def test_every_hog_is_killed_and_the_sandbox_answers_again(limited: Limited) -> None:
    """In one sandbox, one after the other: none leaves it weaker for the next."""
    spec = limited.spec(memory_mib=MEMORY_MIB, pids_max=PIDS, tmpfs_mib=TMPFS_MIB, disk_mib=DISK_MIB)
    async with running(spec) as sandbox:
        boot = (await sandbox.hello())["boot_id"]
        for hog in HOGS:
            try:
                if limited.runtime == "gvisor" and hog.name in NOT_ON_GVISOR:
                    await _is_refused(sandbox, hog)
                    continue
                await _is_survived(sandbox, hog, is_gvisor=limited.runtime == "gvisor")
            except (AssertionError, TimeoutError) as exc:
                raise AssertionError(f"{hog.limit}: {hog.name}: {exc!r}") from exc
            assert (await sandbox.hello())["boot_id"] == boot, hog.name


async def _is_refused(sandbox: RunningSandbox, hog: Hog) -> None:
    before = (await sandbox.keeper.status()).kill_count
    ran = await sandbox.run(
        f"df -m --output=size /work | tail -n 1; {hog.shell.removesuffix('; sleep 20')}; df -m /work"
    )
    assert hog.name not in FULL_ON_GVISOR or (int(ran.out.split()[0]), "No space left" in ran.err) == (
        DISK_MIB,
        True,
    ), ran
    status = await sandbox.keeper.status()
    assert (status.kill_count, status.disk_bytes <= (DISK_MIB + 16) << 20) == (before, True), status
    await _is_emptied(sandbox)


async def _is_survived(sandbox: RunningSandbox, hog: Hog, *, is_gvisor: bool) -> None:
    before = (await sandbox.keeper.status()).kill_count
    boot, job = (await sandbox.hello())["boot_id"], uuid.uuid4().hex
    order = {"id": job, "shell": hog.shell}
    assert (await sandbox.request("POST", "/v2/jobs", order, boot=boot))[0] == 201
    async with asyncio.timeout(60):
        # The one before may still be dying: what is told of that is no answer to this one.
        kills: list[Kill] = []
        while not any(is_gvisor or kill.limit == hog.limit for kill in kills):
            await asyncio.sleep(0.05)
            kills = await _kills_since(sandbox, before)
    async with asyncio.timeout(ANSWERS_AGAIN_S):
        assert (await _answers(sandbox)).out == "ok\n"
    # Where /tmp is memory, what fills the disk fills the memory, too; so does a bomb in a kernel of its own.
    assert {kill.limit for kill in kills} <= {hog.limit, "memory"}
    assert all(kill.used >= kill.allowed for kill in kills)
    await sandbox.request("DELETE", f"/v2/jobs/{job}", boot=boot)
    async with asyncio.timeout(ANSWERS_AGAIN_S):
        await _answers(sandbox)
    await _is_emptied(sandbox)


async def _kills_since(sandbox: RunningSandbox, count: int) -> list[Kill]:
    """What was killed after the first `count`."""
    status = await sandbox.keeper.status()
    return list(status.kills)[count - status.kill_count :] if status.kill_count > count else []


async def _is_emptied(sandbox: RunningSandbox) -> None:
    async with asyncio.timeout(ANSWERS_AGAIN_S):
        while (await sandbox.run("rm -rf ./* /tmp/*")).code or (await sandbox.keeper.status()).disk_bytes > 1 << 24:
            await asyncio.sleep(0.1)


@pytest.mark.user
@pytest.mark.timeout(300)
async def test_a_flood_of_empty_files_is_stopped_as_well(limited: Limited) -> None:
    # What it counts for is the disk in namespaces, and the memory where the kernel is the sandbox's own.
    async with running(limited.spec(disk_mib=4, memory_mib=128)) as sandbox:
        flood = asyncio.create_task(sandbox.run(EMPTY_FILES))
        async with asyncio.timeout(120):
            while not (status := await sandbox.keeper.status()).kills:
                await asyncio.sleep(0.05)
        async with asyncio.timeout(ANSWERS_AGAIN_S):
            assert (await _answers(sandbox)).out == "ok\n"
        flood.cancel()
    assert status.kills[0].limit == "disk"


async def test_a_tmpfs_is_full_at_its_size_and_the_guest_lives_on(limited: Limited) -> None:
    async with running(limited.spec(memory_mib=MEMORY_MIB, tmpfs_mib=TMPFS_MIB)) as sandbox:
        ran = await sandbox.run(f"head -c {2 * TMPFS_MIB}M /dev/zero > /tmp/hog; stat -c %s /tmp/hog; rm /tmp/hog")
        assert "No space left" in ran.err
        assert int(ran.out) <= TMPFS_MIB << 20
        shm = await sandbox.run("head -c 300M /dev/zero > /dev/shm/hog; rm /dev/shm/hog")
        assert "No space left" in shm.err
        assert await sandbox.is_healthy()


async def test_nothing_else_of_the_file_system_can_be_filled(limited: Limited) -> None:
    async with running(limited.spec()) as sandbox:
        ran = await sandbox.run(
            "for d in / /etc /run /var /opt /usr /opt/sbx /home /dev; do echo > $d/x && echo $d; done"
        )
    assert ran.out == ""


async def test_a_single_file_ends_at_the_size_of_the_disk(limited: Limited) -> None:
    async with running(limited.spec(disk_mib=DISK_MIB)) as sandbox:
        ran = await sandbox.run("ulimit -f")
    assert int(ran.out) == DISK_MIB * 1024


async def test_files_that_are_removed_free_the_disk_again(limited: Limited) -> None:
    async with running(limited.spec(disk_mib=DISK_MIB)) as sandbox:
        for _ in range(3):
            ran = await sandbox.run(f"head -c {DISK_MIB * 3 // 4}M /dev/zero > f && rm f")
            assert ran.code == 0
        async with asyncio.timeout(20):
            # Given back a moment later where the sandbox has a kernel of its own.
            while (status := await sandbox.keeper.status()).disk_bytes >= 1 << 20:
                await asyncio.sleep(0.05)
    assert status.kill_count == 0


async def test_cpu_time_is_shared_out_as_asked(namespaces: Limited) -> None:
    async with running(namespaces.spec(vcpus=1)) as sandbox:
        status = await sandbox.keeper.status()
        ran = await sandbox.run(
            "python3 -c 'import multiprocessing as m, time\n"
            "def spin(_):\n  end = time.monotonic() + 1\n  while time.monotonic() < end: pass\n"
            "  return time.process_time()\n"
            'if __name__ == "__main__": print(sum(m.Pool(2).map(spin, range(2), 1)))\''
        )
    assert status.limits["cpu"] in ("cgroup", "affinity", "all processors")
    assert float(ran.out) < 1.5


async def test_the_guest_is_the_last_the_kernel_would_kill(namespaces: Limited) -> None:
    async with running(namespaces.spec()) as sandbox:
        await sandbox.run("setsid sleep 60 > /dev/null 2>&1 &")
        pid = (await sandbox.keeper.status()).pid
        async with asyncio.timeout(5):
            while (scores := _oom_scores(pid)).get("sleep") != 500:
                await asyncio.sleep(0.02)
    assert max(score for name, score in scores.items() if name != "sleep") <= 0


def _oom_scores(keeper: int) -> dict[str, int]:
    scores: dict[str, int] = {}
    for process in descendants(keeper).values():
        with open(f"/proc/{process.pid}/oom_score_adj") as file:
            scores[process.command] = int(file.read())
    return scores
