"""The kernel's notes of what changed in folders, one watch for each: for guests that may not watch a file system."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterable, Iterator

from sbxguest.tree.root import Root, join

# Of <sys/inotify.h>.
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _ON_FOLDER = 0x4000, 0x8000, 0x40000000
_ONLY_FOLDERS, _NO_LINKS = 0x01000000, 0x02000000
_MASK = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLY_FOLDERS | _NO_LINKS
_EVENT = struct.Struct("=iIII")
_READ_BYTES = 256 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """Changes below a root, in the folders it is told of. Close it.

    Args:
        root: Of the tree.
        folders: Lists the folders at and below a path; the root's is empty.

    Raises:
        OSError: The kernel has no such thing, or not for so many folders.
    """

    kind = "inotify"

    def __init__(self, root: Root, folders: Callable[[bytes], Iterable[bytes]]) -> None:
        self._root = root
        self._folders = folders
        self._paths: dict[int, bytes] = {}
        self.fd = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            self._watch_below(b"")
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """End the notes."""
        os.close(self.fd)

    def refresh(self) -> None:
        """Watch folders that are not left out any more."""
        self._watch_below(b"")

    def read(self) -> Iterator[bytes | None]:
        """The paths of changes that wait to be read, relative to the root; None where some were lost.

        Raises:
            OSError: There are more folders by now than can be watched.
        """
        while True:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at + _EVENT.size <= len(data):
                watch, mask, _cookie, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = data[at : at + length].partition(b"\0")[0]
                at += length
                yield from self._change(watch, mask, name)

    def _change(self, watch: int, mask: int, name: bytes) -> Iterator[bytes | None]:
        if mask & _OVERFLOW:
            yield None
        if mask & _IGNORED:
            self._paths.pop(watch, None)
        folder = self._paths.get(watch)
        if folder is None or not name:
            return
        path = join(folder, name)
        if mask & _ON_FOLDER and mask & (_MOVED_FROM | _DELETE):
            self._forget_below(path)
        if mask & _ON_FOLDER and mask & (_CREATE | _MOVED_TO):
            # Before anybody is told to look there: what comes later is noted by the new watches.
            self._watch_below(path)
        yield path

    def _watch_below(self, path: bytes) -> None:
        for folder in self._folders(path):
            try:
                fd = self._root.open_folder(folder)
            except OSError:
                continue
            try:
                # By its descriptor: a link that has taken its place is not followed.
                watch = _libc.inotify_add_watch(self.fd, b"/proc/self/fd/%d/." % fd, _MASK)
            finally:
                os.close(fd)
            if watch < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            self._paths[watch] = folder

    def _forget_below(self, path: bytes) -> None:
        """A folder that went is watched no more, or, if it was moved within the tree, under its new name."""
        for watch, folder in list(self._paths.items()):
            if folder == path or folder.startswith(path + b"/"):
                del self._paths[watch]
                _libc.inotify_rm_watch(self.fd, watch)
