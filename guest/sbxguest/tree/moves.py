"""Renames that say what they found, where the kernel has them; else the nearest thing to them."""

from __future__ import annotations

import ctypes
import errno
import os

_NO_REPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def move_to_free_name(source: str, source_fd: int, name: bytes, folder_fd: int) -> None:
    """Rename, unless something has the name.

    Raises:
        FileExistsError: Something has. OSError: The disk refused.
    """
    if _rename(source, source_fd, name, folder_fd, _NO_REPLACE):
        return
    # Making a second name refuses a taken one, too.
    os.link(source, name, src_dir_fd=source_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
    os.unlink(source, dir_fd=source_fd)


def exchange(source: str, source_fd: int, name: bytes, folder_fd: int) -> bool:
    """Let two entries change places in one step; False where that is not possible.

    Raises:
        FileNotFoundError: One of them is not there. OSError: The disk refused.
    """
    return _rename(source, source_fd, name, folder_fd, _EXCHANGE)


def _rename(source: str, source_fd: int, name: bytes, folder_fd: int, flags: int) -> bool:
    if _renameat2 is None:
        return False
    if _renameat2(source_fd, os.fsencode(source), folder_fd, name, flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))
