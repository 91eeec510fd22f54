"""The processes of one sandbox as the host sees them, read from `/proc`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# In the command line of every keeper.
KEEPER_MODULE = "sbxtui.localcloud.keeper"
# Parts of the command line by which the guest's own programs are told from jobs. A job that fakes one only outlives its
# siblings: when nothing else is left to kill, the whole sandbox is.
_GUEST_MARKS = (b"sbxguest", b"sbxboot")
_STOP_TIMEOUT_S = 2.0
# What waits in the kernel stops before it runs again; the parent of a vfork waits there until its child goes on.
_STOPPED_STATES = "tTD"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `session` and `parent` are pids of the host; `tasks` counts threads."""

    pid: int
    parent: int
    session: int
    state: str
    start_ticks: int
    tasks: int
    rss_bytes: int
    command: str

    @property
    def is_alive(self) -> bool:
        """Not a zombie."""
        return self.state not in "ZX"


def read_process(pid: int) -> Process | None:
    """The process, or None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command may hold anything, so count from its last parenthesis.
    command = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode(errors="replace")
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        state=fields[0].decode(),
        start_ticks=int(fields[19]),
        tasks=int(fields[17]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
        command=command,
    )


def child_pids(pid: int) -> list[int]:
    """Children of every thread of a process."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - ten times a second: no Path objects
            with contextlib.suppress(OSError):
                pids += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    return pids


def descendants(root: int) -> dict[int, Process]:
    """All processes below `root`, itself left out."""
    found: dict[int, Process] = {}
    waiting = child_pids(root)
    while waiting:
        pid = waiting.pop()
        if pid in found:
            continue
        process = read_process(pid)
        if process is not None:
            found[pid] = process
            waiting += child_pids(pid)
    return found


def guest_pids(processes: dict[int, Process], boot: int) -> set[int]:
    """Those of `processes` that are the guest: `boot` and what stands above it, its children (init, bridge), and
    theirs.

    Jobs are children of those last ones (one parent each), so three levels are all of the guest.
    """
    above = set()
    pid = boot
    while pid in processes:
        above.add(pid)
        pid = processes[pid].parent
    first = {p.pid for p in processes.values() if p.parent == boot and _is_marked(p.pid)}
    second = {p.pid for p in processes.values() if p.parent in first and _is_marked(p.pid)}
    return above | first | second


def _is_marked(pid: int) -> bool:
    return any(mark in word for word in command_words(pid) for mark in _GUEST_MARKS)


def command_words(pid: int) -> list[bytes]:
    """The command line of a process; none if it is gone or hidden."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def pids_called(is_meant: Callable[[Sequence[bytes]], bool]) -> Iterator[int]:
    """Processes of this machine whose command line is meant. A number may be another's by the time it is used."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - there may be thousands
        if name.isdecimal() and is_meant(command_words(int(name))):
            yield int(name)


def resident_bytes(pid: int) -> int:
    """Anonymous and shared-memory pages of a process: what only its end gives back. Pages shared after fork count in
    each.
    """
    total = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith((b"RssAnon:", b"RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def proportional_bytes(pid: int) -> int:
    """As `resident_bytes`, but shared pages are split among their holders; dearer to read. Falls back to it where
    refused.
    """
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                total += int(line.split()[1]) * 1024
    except OSError:
        return resident_bytes(pid)
    return total


def written_bytes(pid: int) -> int:
    """Bytes the process caused to be written to a disk, 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
    return 0


def reap_all() -> None:
    """Reap what children of this process have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def stop_all(list_processes: Callable[[], dict[int, Process]]) -> tuple[set[int], bool]:
    """SIGSTOP every process of a list that may grow while we walk it, until nothing new shows.

    Returns:
        Those we stopped, and whether nothing runs any more: not if new ones showed for too long, or one did not stop.
        Processes that were stopped before are not among them: whoever goes on must not wake them.
    """
    ours: set[int] = set()
    seen: set[int] = set()
    give_up_at = time.monotonic() + _STOP_TIMEOUT_S
    while time.monotonic() < give_up_at:
        processes = {pid: p for pid, p in list_processes().items() if p.is_alive}
        new = [p for p in processes.values() if p.pid not in seen]
        if not new and all(processes[pid].state in _STOPPED_STATES for pid in ours if pid in processes):
            return ours, True
        ours |= {p.pid for p in new if p.state != "T"}
        seen |= {p.pid for p in new}
        send_signal([p.pid for p in new if p.state != "T"], signal.SIGSTOP)
        time.sleep(0.001)
    return ours, False


def unlinked_bytes(pids: Iterable[int], devices: Collection[int]) -> int:
    """Files on devices that have no name any more and are still open in one of the processes: they fill it as well."""
    total = 0
    seen: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - there may be a thousand: no Path objects
                with contextlib.suppress(OSError):
                    info = os.stat(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH116 - as above
                    if info.st_nlink == 0 and info.st_dev in devices and info.st_ino not in seen:
                        seen.add(info.st_ino)
                        total += info.st_blocks * 512
    return total
