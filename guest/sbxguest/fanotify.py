"""The kernel's notes of what changed on a whole file system. Needs a privileged process, and misses nothing."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable, Iterator

from sbxguest.tree.root import Root

# Of <linux/fanotify.h>.
_INIT_FLAGS = 0x1 | 0x2 | 0x400 | 0x800  # close on exec, no waiting, and the folder and name of each event
_MARK_FILE_SYSTEM = 0x1 | 0x100
_MARK_IGNORE = 0x1 | 0x400 | 0x40  # whatever happens there; since Linux 6.0
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _ON_FOLDER = 0x4000, 0x40000000
_MASK = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ON_FOLDER
_AND_IN_IT = 0x08000000
_NAME_OF_CHILD = 2

_EVENT = struct.Struct("=IBBHQii")
_INFO = struct.Struct("=BBH8sIi")
_READ_BYTES = 256 * 1024
_O_PATH = os.O_PATH | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class Fanotify:
    """Changes below a root. Close it.

    Args:
        root: It.
        quiet: Descriptors of folders in which much happens that nobody asks about; it need not even be told.

    Raises:
        OSError: The kernel has no such thing, or not for us.
    """

    kind = "fanotify"

    def __init__(self, root: Root, quiet: Iterable[int] = ()) -> None:
        self._root = root
        self._prefix = os.fsencode(root.path.rstrip("/")) + b"/"
        self.fd = _checked(_libc.fanotify_init(_INIT_FLAGS, os.O_RDONLY))
        try:
            mask = ctypes.c_uint64(_MASK)
            _checked(_libc.fanotify_mark(self.fd, _MARK_FILE_SYSTEM, mask, root.fd, b"."))
            for folder_fd in quiet:
                # Where the kernel cannot, they are told and nobody takes note.
                _libc.fanotify_mark(self.fd, _MARK_IGNORE, ctypes.c_uint64(_MASK | _AND_IN_IT), folder_fd, b".")
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """End the notes."""
        os.close(self.fd)

    def refresh(self) -> None:
        """Nothing is ever left out here."""

    def read(self) -> Iterator[bytes | None]:
        """The paths of changes that wait to be read, relative to the root; None where some were lost."""
        # Folders may be renamed at any time, so what is known of them holds for one look only.
        folders: dict[bytes, bytes | None] = {}
        while True:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return
            for event in _events(data):
                if event is None:
                    yield None
                elif (path := self._path(event[0], event[1], folders)) is not None:
                    yield path
            folders.clear()

    def _path(self, handle: bytes, name: bytes, folders: dict[bytes, bytes | None]) -> bytes | None:
        if handle not in folders:
            folders[handle] = self._folder(handle)
        folder = folders[handle]
        if folder is None or name == b".":
            return None
        return folder + name

    def _folder(self, handle: bytes) -> bytes | None:
        """The path of a folder below the root, with a slash at its end; None for one that is elsewhere or gone."""
        fd = _libc.open_by_handle_at(self._root.fd, handle, _O_PATH)
        if fd < 0:
            return None
        with contextlib.suppress(OSError):
            try:
                path = os.readlink(b"/proc/self/fd/%d" % fd) + b"/"  # noqa: PTH115 - the path is bytes
            finally:
                os.close(fd)
            if path.startswith(self._prefix):
                return path[len(self._prefix) :]
        return None


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _events(data: bytes) -> Iterator[tuple[bytes, bytes] | None]:
    """The handle of each event's folder and the name in it; None for an overflow."""
    at = 0
    while at + _EVENT.size <= len(data):
        length, _version, _, head_bytes, mask, _fd, _pid = _EVENT.unpack_from(data, at)
        if mask & _OVERFLOW:
            yield None
        else:
            yield from _names(data[at + head_bytes : at + length])
        at += length


def _names(infos: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + _INFO.size <= len(infos):
        kind, _, length, _fs, handle_bytes, _handle_type = _INFO.unpack_from(infos, at)
        if kind == _NAME_OF_CHILD:
            handle_at = at + _INFO.size - 8
            name_at = at + _INFO.size + handle_bytes
            yield infos[handle_at:name_at], infos[name_at : at + length].partition(b"\0")[0]
        at += max(length, 1)
