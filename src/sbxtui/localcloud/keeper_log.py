"""What a sandbox's own programs print, kept in a file that cannot grow without end: they are not trusted with the
file itself.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from pathlib import Path

_FILE_BYTES = 512 * 1024
_READ_BYTES = 65_536
_READS_PER_REFILL = 8


class GuestLog:
    """Copies a pipe into `path`; when that is full it becomes `path`.1, replacing an older one.

    Between two calls of `refill` only so much is read: who writes more waits, and costs its keeper nothing.
    """

    def __init__(self, path: Path, selector: selectors.BaseSelector) -> None:
        self._path = path
        self._selector = selector
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._file = self._open()
        self._reads_left = 0
        self._is_reading = False
        self.refill()

    def refill(self) -> None:
        """Allow some more reading."""
        self._reads_left = _READS_PER_REFILL
        if not self._is_reading:
            self._is_reading = True
            self._selector.register(self._read_fd, selectors.EVENT_READ, self._on_readable)

    def close(self) -> None:
        """Copy what is in the pipe and close all."""
        os.close(self.write_fd)
        self._copy()
        self._pause()
        os.close(self._read_fd)
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _on_readable(self) -> None:
        self._copy()
        self._reads_left -= 1
        if self._reads_left <= 0:
            self._pause()

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._selector.unregister(self._read_fd)

    def _copy(self) -> None:
        with contextlib.suppress(BlockingIOError):
            part = os.read(self._read_fd, _READ_BYTES)
            # A full disk must not end the keeper.
            with contextlib.suppress(OSError):
                os.write(self._file, part)
                self._turn_over()

    def _turn_over(self) -> None:
        if os.fstat(self._file).st_size < _FILE_BYTES:
            return
        # Missing after a turn whose second half failed.
        with contextlib.suppress(FileNotFoundError):
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        old, new = self._file, self._open()
        # What the keeper itself says belongs into the same file.
        for own in (1, 2):
            if os.path.samestat(os.fstat(own), os.fstat(old)):
                os.dup2(new, own)
        self._file = new
        os.close(old)
