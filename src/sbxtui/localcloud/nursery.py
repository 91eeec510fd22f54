"""This process's nursery of keepers: a child that forks one for each order, started when it is first needed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

_CODE = """\
import os, sys
sys.path.insert(0, sys.argv.pop(1))
from sbxtui.localcloud.keeper_nursery import main
os._exit(main(sys.argv))
"""
# The command line of a keeper is written over this.
_PADDING = " " * 4096


class Nursery:
    """Threads may share one. Its child ends with this process, or when it was killed; then the next order starts
    another.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._orders: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def order(self, spec_file: Path, ready_fd: int, log_fd: int, *, timeout_s: float) -> None:
        """Have a keeper forked; returns when its command line tells it from others. The descriptors stay the caller's.

        Raises:
            TimeoutError: The child does not do it in time; no keeper comes of it any more.
            OSError: It cannot be started.
        """
        with self._turn:
            for is_last in (False, True):
                orders = self._open()
                orders.settimeout(timeout_s)
                try:
                    socket.send_fds(orders, [os.fsencode(spec_file)], [ready_fd, log_fd])
                    if orders.recv(1):
                        return
                    raise ConnectionResetError("the nursery ended")
                except TimeoutError:
                    self._close()
                    raise
                except ConnectionError:
                    self._close()
                    if is_last:
                        raise

    def _open(self) -> socket.socket:
        if self._orders is not None:
            return self._orders
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # Without `site`: a keeper needs the standard library and this package, and that loads in half the time.
            command = [sys.executable, "-I", "-S", "-c", _CODE, str(Path(__file__).parents[2]), str(theirs.fileno())]
            self._child = subprocess.Popen(
                [*command, _PADDING],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._orders = ours
        return ours

    def _close(self) -> None:
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._child is not None:
            # With its group: what it forked last and was not told of yet.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
            self._child = None
