"""Where a job's output comes from: pipes, or a terminal."""

from __future__ import annotations

import os
from typing import Protocol

from sbxguest import wire
from sbxguest.joblog import JobLog
from sbxguest.terminal import Terminal

_READ_BYTES = 64 * wire.KIB
_PIPES = {"out_r": wire.Channel.OUT, "err_r": wire.Channel.ERR}


class Source(Protocol):
    """Output of one channel. `kept` names the descriptors init holds for it."""

    @property
    def channel(self) -> wire.Channel:
        """What its bytes are marked with."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The names init knows its descriptors by."""

    @property
    def fds(self) -> tuple[int, ...]:
        """To be watched for output."""

    def take(self, log: JobLog, limit_bytes: int) -> int:
        """Move output into the log; 0 at its end. Raises BlockingIOError when there is none now."""

    def discard(self) -> int:
        """Drop output; else as `take`."""

    def close(self) -> None:
        """Close it here; init may still hold it."""


class Pipe:
    """The reading end of a pipe."""

    def __init__(self, name: str, fd: int) -> None:
        os.set_blocking(fd, False)
        self.channel = _PIPES[name]
        self.kept = (name,)
        self.fds: tuple[int, ...] = (fd,)

    def take(self, log: JobLog, limit_bytes: int) -> int:
        """See `Source`."""
        return log.take(self.fds[0], self.channel, limit_bytes)

    def discard(self) -> int:
        """See `Source`."""
        return len(os.read(self.fds[0], _READ_BYTES))

    def close(self) -> None:
        """See `Source`."""
        for fd in self.fds:
            os.close(fd)
        self.fds = ()


def sources_of(fds: dict[str, int], terminal: Terminal | None) -> list[Source]:
    """The sources among a job's descriptors."""
    pipes: list[Source] = [Pipe(name, fds[name]) for name in _PIPES if name in fds]
    return pipes if terminal is None else [*pipes, terminal]
