"""The few changing facts of a job, written through to its log file so that a restarted server knows them."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from enum import IntFlag
from typing import Any

from sbxguest import wire

_AT = 192
_STATE = struct.Struct("<QQQQqQQ")


class Flag(IntFlag):
    """What has happened to a job."""

    STDIN_ENDED = 1
    TIMED_OUT = 2
    ENDING = 4
    FINISHED = 8
    LINGERING = 16
    OOM = 32
    HOLD_OVER = 64


class JobState:
    """Read at once, written through on `save`. Times are milliseconds; `ran_ms` counts towards the timeout."""

    __slots__ = ("_fd", "end_cursor", "ended_ms", "exit_code", "flags", "ran_ms", "started_ms", "stdin_accepted")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        data = os.pread(fd, _STATE.size, _AT).ljust(_STATE.size, b"\0")
        (
            self.ran_ms,
            self.stdin_accepted,
            flags,
            self.started_ms,
            self.exit_code,
            self.end_cursor,
            self.ended_ms,
        ) = _STATE.unpack(data)
        self.flags = Flag(flags)

    def close(self) -> None:
        """The log file is being closed, and its number may soon be another file's: write nothing any more."""
        self._fd = -1

    def save(self) -> None:
        """Write it through; without effect after `close`."""
        if self._fd < 0:
            return
        data = _STATE.pack(
            self.ran_ms,
            self.stdin_accepted,
            self.flags,
            self.started_ms,
            self.exit_code,
            self.end_cursor,
            self.ended_ms,
        )
        os.pwrite(self._fd, data, _AT)

    def has(self, flag: Flag) -> bool:
        """Whether that has happened."""
        return flag in self.flags

    def set(self, flag: Flag) -> None:
        """Note that it has, and write it through."""
        self.flags |= flag
        self.save()

    def exit_document(self, totals: Mapping[wire.Channel, int]) -> dict[str, Any]:
        """What EXIT says of a finished job, given the bytes of each channel."""
        code = self.exit_code
        return {
            "code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "timed_out": self.has(Flag.TIMED_OUT),
            "oom": self.has(Flag.OOM),
            "lingering": self.has(Flag.LINGERING),
            "duration_s": (self.ended_ms - self.started_ms) / 1000,
            "totals": {
                "out": totals[wire.Channel.OUT],
                "err": totals[wire.Channel.ERR],
                "pty": totals[wire.Channel.PTY],
                "all": self.end_cursor,
            },
        }
