"""A guard keeps nothing of its keeper's but what it needs."""

from __future__ import annotations

import fcntl
import os

from sbxtui.localcloud.runtimes.guard import start_guard


def test_descriptors_above_any_usual_limit_are_closed_in_the_guard() -> None:
    read, write = os.pipe()
    said_read, said_write = os.pipe()
    high = fcntl.fcntl(write, fcntl.F_DUPFD_CLOEXEC, 1500)

    def start() -> int:
        try:
            os.fstat(high)
            os.write(said_write, b"open")
        except OSError:
            os.write(said_write, b"closed")
        child = os.fork()
        if child == 0:
            os._exit(0)
        return child

    guard = start_guard(start, keep_fds=(said_write,))
    _, status = os.waitpid(guard, 0)
    assert (os.read(said_read, 16), status) == (b"closed", 0)
    for descriptor in (read, write, said_read, said_write, high):
        os.close(descriptor)
