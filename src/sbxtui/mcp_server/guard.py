"""Keeping the client's pipe for the protocol alone."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wire:
    """Our ends of the client's two pipes."""

    input_fd: int
    output_fd: int


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
