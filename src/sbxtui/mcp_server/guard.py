"""Keeping the client's pipe for the protocol alone."""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wire:
    """Our ends of the client's two pipes."""

    input_fd: int
    output_fd: int


def eager(number: int, flags: int) -> int | None:
    """Another descriptor of a pipe, on which nothing waits; None of what is no pipe, or where there can be none.

    What is set on the one the client gave us is set for everybody who has it.

    Args:
        number: Ours.
        flags: As of `os.open`: which end it is.
    """
    try:
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            return os.open(f"/proc/self/fd/{number}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        pass
    return None


def take_wire() -> Wire:
    """Move the pipes away from descriptors 0 and 1: what reads from here on gets an empty input, and what prints, or
    is started and prints, goes to stderr.
    """
    wire = Wire(*(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3) for number in (0, 1)))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire
