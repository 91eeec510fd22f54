"""A process that has loaded all a keeper needs and forks one for each order, so that a keeper starts in no time.

    python -m sbxtui.localcloud.keeper_nursery SOCKET_FD [PADDING]

An order is one message on the socket: the path of a spec, with two descriptors, for what a keeper tells when its
sandbox is ready and for its log. One byte comes back when there is a keeper, in a session of its own and with a command
line of its own, or when there will be none. It ends with the socket; keepers live on. PADDING is room for their command
lines.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path

from sbxtui.localcloud import keeper
from sbxtui.localcloud.keeper_processes import KEEPER_MODULE

_ORDER_BYTES = 8192
_DONE = b"."
# Of `/proc/PID/stat`, counted from the state on.
_ARG_START, _ARG_END = 45, 46


def main(argv: list[str]) -> int:
    """Serve until the socket ends; in each keeper, its exit code."""
    orders = socket.socket(fileno=int(argv[1]))
    # Nobody waits for a keeper here. Hang-ups and interrupts are for whoever gives the orders.
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 2)
        if not order:
            return 0
        ready_fd, log_fd = descriptors
        try:
            is_keeper = os.fork() == 0
        except OSError as exc:
            is_keeper = False
            # Whoever waited may be gone.
            with contextlib.suppress(OSError):
                os.write(ready_fd, json.dumps({"error": f"it could not be forked: {exc.strerror}"}).encode() + b"\n")
            with contextlib.suppress(OSError):
                orders.send(_DONE)
        if is_keeper:
            return _become_keeper(os.fsdecode(order), orders, ready_fd, log_fd)
        for descriptor in descriptors:
            os.close(descriptor)


def _become_keeper(spec_file: str, orders: socket.socket, ready_fd: int, log_fd: int) -> int:
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    for standard in (1, 2):
        os.dup2(log_fd, standard)
    os.close(log_fd)
    os.setsid()
    _call_it([sys.executable, "-m", KEEPER_MODULE, spec_file])
    # Whoever gave the order may be gone; a keeper lives on.
    with contextlib.suppress(OSError), orders:
        orders.send(_DONE)
    return keeper.keep(Path(spec_file), ready_fd)


def _call_it(words: list[str]) -> None:
    """Give this process another command line: by that, a keeper and its sandbox are told from others.

    It is written over the one it was started with, which no privilege is needed for; where it has no room, it is left.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = (int(fields[at]) for at in (_ARG_START, _ARG_END))
        line = b"".join(os.fsencode(word) + b"\0" for word in words)
        if 0 < len(line) < end - start:
            ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    os._exit(main(sys.argv))
