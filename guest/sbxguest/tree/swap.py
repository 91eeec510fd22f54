"""The steps by which something takes a place, or leaves it, and what leaves is kept.

What was taken is looked at afterwards: a write that came between the look before and the step is seen, and put back.
"""

from __future__ import annotations

import contextlib
import os

from sbxguest.tree.moves import exchange, move_to_free_name
from sbxguest.tree.root import look


class Changed(Exception):
    """Something else stood there by then, and does so again."""


def take_away(name: bytes, fd: int, found: os.stat_result, slot: str, slot_fd: int) -> None:
    """Move what was found at a name to a free one.

    Raises:
        Changed: It was something else. OSError: The disk refuses.
    """
    os.rename(name, slot, src_dir_fd=fd, dst_dir_fd=slot_fd)
    if _is_other(found, look(slot, slot_fd)):
        # If the name is taken again meanwhile, what was taken stays where it is kept.
        with contextlib.suppress(OSError):
            move_to_free_name(slot, slot_fd, name, fd)
        raise Changed


def put_in_place(
    new: str, new_fd: int, inode: int, name: bytes, fd: int, found: os.stat_result, slot: str, slot_fd: int
) -> None:
    """Give a name to something new, which has that inode, and move what was found there to a free one, in one step.

    Raises:
        Changed: It was something else. OSError: The disk refuses.
    """
    # The new waits where the old shall go: wherever this process ends, the old is in one of the two places.
    os.rename(new, slot, src_dir_fd=new_fd, dst_dir_fd=slot_fd)
    try:
        if not exchange(slot, slot_fd, name, fd):
            os.rename(slot, new, src_dir_fd=slot_fd, dst_dir_fd=new_fd)
            _put_in_two_steps(new, new_fd, name, fd, found, slot, slot_fd)
            return
    except OSError:
        _drop_if(inode, slot, slot_fd)
        raise
    if _is_other(found, look(slot, slot_fd)):
        with contextlib.suppress(OSError):
            exchange(slot, slot_fd, name, fd)
        _drop_if(inode, slot, slot_fd)
        raise Changed


def _put_in_two_steps(
    new: str, new_fd: int, name: bytes, fd: int, found: os.stat_result, slot: str, slot_fd: int
) -> None:
    """Where things cannot change places: the old gets a second name before it loses its own."""
    os.link(name, slot, src_dir_fd=fd, dst_dir_fd=slot_fd, follow_symlinks=False)
    if _is_other(found, look(slot, slot_fd)) or _is_other(found, look(name, fd)):
        _drop_if(found.st_ino, slot, slot_fd)
        raise Changed
    os.rename(new, name, src_dir_fd=new_fd, dst_dir_fd=fd)


def _drop_if(inode: int, name: str, fd: int) -> None:
    """Remove something, if it is still what it was."""
    with contextlib.suppress(OSError):
        if look(name, fd).st_ino == inode:
            os.unlink(name, dir_fd=fd)


def _is_other(found: os.stat_result, taken: os.stat_result) -> bool:
    """Whether something else was taken than was found. Taking it changed its ctime."""
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode) != (
        taken.st_ino,
        taken.st_size,
        taken.st_mtime_ns,
        taken.st_mode,
    )
