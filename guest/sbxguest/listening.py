"""Which ports something listens on, and which process that is. Blocking; reads /proc, and is used by both ends.

Imports the standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

_LISTEN = "0A"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Listening:
    """A port, and who listens there.

    Attributes:
        addresses: What it is bound to, sorted.
        pid: Of the process; 0 when it cannot be told.
        process: Its name, empty when it cannot be told.
        since_s: When that process began, in seconds since the epoch; 0 when it cannot be told.
    """

    port: int
    addresses: tuple[str, ...]
    pid: int = 0
    process: str = ""
    since_s: float = 0.0


def listening(proc: Path = Path("/proc"), pids: Iterable[int] | None = None) -> list[Listening]:
    """Every port that is listened on, by number.

    Args:
        proc: Where proc is mounted.
        pids: The processes that count; None: all, and sockets without a known process, too.
    """
    sockets = _sockets(proc)
    owners = _owners(proc, _numbered(proc) if pids is None else pids, frozenset(sockets))
    found: dict[tuple[int, int], set[str]] = {}
    for inode, (address, port) in sockets.items():
        pid = owners.get(inode, 0)
        if pid or pids is None:
            found.setdefault((port, pid), set()).add(address)
    return [
        Listening(port, tuple(sorted(addresses)), pid, *_told(proc, pid))
        for (port, pid), addresses in sorted(found.items())
    ]


def listening_inodes(proc: Path = Path("/proc")) -> frozenset[int]:
    """The sockets that listen, for whoever wants to know cheaply whether they are still the same."""
    return frozenset(_sockets(proc))


def _sockets(proc: Path) -> dict[int, tuple[str, int]]:
    return {inode: place for name in ("tcp", "tcp6") for inode, place in _table(proc / "net" / name)}


def _table(file: Path) -> Iterator[tuple[int, tuple[str, int]]]:
    try:
        lines = file.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            yield int(fields[9]), (_address(address), int(port, 16))


def _address(text: str) -> str:
    """The kernel writes addresses as words of the machine, in its own byte order."""
    words = (bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    return str(ip_address(b"".join(words)))


def _owners(proc: Path, pids: Iterable[int], inodes: frozenset[int]) -> dict[int, int]:
    """The process of each socket; of several that share one, the oldest."""
    owners: dict[int, int] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for pid in sorted(pids):
        for descriptor in _entries(proc / str(pid) / "fd"):
            try:
                target = str(descriptor.readlink())
            except OSError:
                continue
            if (inode := wanted.get(target)) is not None:
                owners.setdefault(inode, pid)
    return owners


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _numbered(proc: Path) -> list[int]:
    return [int(entry.name) for entry in _entries(proc) if entry.name.isdecimal()]


def _told(proc: Path, pid: int) -> tuple[str, float]:
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
        uptime_s = float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError):
        return "", 0.0
    name = stat[stat.index(b"(") + 1 : stat.rindex(b")")].decode(errors="replace")
    started_ticks = int(stat[stat.rindex(b")") + 2 :].split()[19])
    return name, time.time() - uptime_s + started_ticks / _TICKS
