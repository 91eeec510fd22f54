"""The terminal of a job, as the server sees it: its output on the way to the log, its size, and what ends its input."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import sys
import termios
from typing import NamedTuple

from sbxguest import descriptors, wire
from sbxguest.joblog import JobLog

# What init keeps: the controlling side, and the pipe between it and the log.
KEPT = ("pty", "relay_r", "relay_w")
_WINDOW = struct.Struct("HHHH")
# TIOCGPTN, which the standard library does not name.
_GET_NUMBER = 0x80045430
_READ_BYTES = 64 * wire.KIB
_READS_PER_TAKE = 16
_NO_SPLICE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_DISABLED = 0
# The last is the usual end-of-file character.
_LINE_ENDS = b"\r\n\x04"
_LOCAL_FLAGS, _CONTROL_CHARACTERS = 3, 6

# Whether the kernel takes a new size and sends no signal, as gVisor's does; set by the server.
is_kernel_silent = False


class Size(NamedTuple):
    """Of a terminal, in characters."""

    cols: int
    rows: int


def open_pair(size: Size, *, uid: int | None) -> dict[str, int]:
    """A new terminal of that size: `KEPT`, and `tty`, which is the program's side. A program's user owns its side."""
    fds: dict[str, int] = {}
    try:
        fds["pty"], fds["tty"] = os.openpty()
        os.set_blocking(fds["pty"], False)
        _set_size(fds["pty"], size)
        if uid is not None:
            os.fchown(fds["tty"], uid, -1)
        fds["relay_r"], fds["relay_w"] = os.pipe()
    except OSError:
        descriptors.close_all(fds.values())
        raise
    return fds


class Terminal:
    """Owns the server's descriptors of one terminal.

    Output goes from the terminal into a pipe and from there into the log, each with splice(2): a read would hold bytes
    in this process's memory, and they would be lost with it.

    The program's side is held open here for as long as the leader runs: a program that closes its terminal for a while
    and opens it again would else be taken for one that has ended.
    """

    channel = wire.Channel.PTY
    kept = KEPT

    def __init__(self, fds: dict[str, int], *, is_running: bool) -> None:
        self._pty, self._relay_r, self._relay_w = (fds[name] for name in KEPT)
        for fd in (self._pty, self._relay_r, self._relay_w):
            os.set_blocking(fd, False)
        self._has_ended = False
        self._is_line_open = False
        self._own_side = _open_other_side(self._pty) if is_running else -1

    @property
    def fds(self) -> tuple[int, ...]:
        """To be watched for output."""
        return tuple(fd for fd in (self._pty, self._relay_r) if fd >= 0)

    @property
    def input_fd(self) -> int:
        """To be watched for room for input; -1 once closed."""
        return self._pty

    @property
    def program_fd(self) -> int:
        """The program's side; -1 when it is not held open."""
        return self._own_side

    # -- output -------------------------------------------------------------------------------------------------------

    def take(self, log: JobLog, limit_bytes: int) -> int:
        """Move output into the log. Returns 0 at its end.

        Raises:
            BlockingIOError: There is none now.
        """
        self._fill_relay()
        try:
            return log.take(self._relay_r, self.channel, limit_bytes)
        except BlockingIOError:
            if self._has_ended:
                return 0
            raise

    def discard(self) -> int:
        """Drop output; else as `take`."""
        self._fill_relay()
        try:
            return len(os.read(self._relay_r, _READ_BYTES))
        except BlockingIOError:
            if self._has_ended:
                return 0
            raise

    def _fill_relay(self) -> None:
        try:
            # A terminal hands out 4 KiB at a time.
            for _ in range(_READS_PER_TAKE):
                if self._has_ended or not self._move():
                    return
        except BlockingIOError:
            return
        except OSError:
            # EIO: nobody has the program's side open any more.
            self._has_ended = True

    def _move(self) -> int:
        try:
            return os.splice(self._pty, self._relay_w, _READ_BYTES, flags=os.SPLICE_F_NONBLOCK)
        except OSError as exc:
            if exc.errno not in _NO_SPLICE:
                raise
        # A kernel that cannot: what is read must have room, for there is no putting it back.
        waiting = int.from_bytes(fcntl.ioctl(self._relay_r, termios.FIONREAD, bytes(4)), sys.byteorder)
        if waiting > _READ_BYTES // 4:
            return 0
        return os.write(self._relay_w, os.read(self._pty, select.PIPE_BUF))

    # -- input --------------------------------------------------------------------------------------------------------

    def write(self, data: memoryview) -> int:
        """Type as much of `data` as there is room for.

        Raises:
            BlockingIOError: There is no room now.
            OSError: The terminal is gone.
        """
        written = os.write(self._pty, data)
        if written:
            self._is_line_open = data[written - 1] not in _LINE_ENDS
        return written

    def end_of_input(self) -> bytes:
        """What to type for the program to read an end: one end-of-file character ends an empty line, two any other."""
        attributes = termios.tcgetattr(self._pty)
        character: bytes = attributes[_CONTROL_CHARACTERS][termios.VEOF]
        if character == bytes([_DISABLED]):
            return b""
        is_by_line = attributes[_LOCAL_FLAGS] & termios.ICANON
        return character * 2 if is_by_line and self._is_line_open else character

    # -- size and end -------------------------------------------------------------------------------------------------

    @property
    def size(self) -> Size | None:
        """As of now; None once closed."""
        if self._pty < 0:
            return None
        rows, cols, _, _ = _WINDOW.unpack(fcntl.ioctl(self._pty, termios.TIOCGWINSZ, bytes(_WINDOW.size)))
        return Size(cols, rows)

    def resize(self, size: Size) -> bool:
        """Change the size, of which the kernel tells the foreground programs (SIGWINCH).

        Returns:
            Whether somebody else must tell them.
        """
        before = self.size
        if before is None or before == size:
            return False
        _set_size(self._pty, size)
        return is_kernel_silent

    def release(self) -> None:
        """The leader has ended: from now on, nobody's holding the program's side is the end."""
        if self._own_side >= 0:
            os.close(self._own_side)
            self._own_side = -1

    def close(self) -> None:
        """Close all of it here. When init has too, the kernel hangs up on whoever still uses the terminal."""
        self.release()
        descriptors.close_all(fd for fd in (self._pty, self._relay_r, self._relay_w) if fd >= 0)
        self._pty = self._relay_r = self._relay_w = -1
        self._has_ended = True


def _set_size(fd: int, size: Size) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, _WINDOW.pack(size.rows, size.cols, 0, 0))


def _open_other_side(pty: int) -> int:
    number = int.from_bytes(fcntl.ioctl(pty, _GET_NUMBER, bytes(4)), sys.byteorder)
    try:
        return os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1
