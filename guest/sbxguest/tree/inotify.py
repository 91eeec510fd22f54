"""The kernel's notes of what changed in folders, one watch for each: nothing is asked for again and again."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator

from sbxguest.tree.ignore import Rules, TextSource
from sbxguest.tree.root import OWN_PREFIXES, Root, join

# Of <sys/inotify.h>.
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_OVERFLOW, _IGNORED, _ON_FOLDER = 0x4000, 0x8000, 0x40000000
_ONLY_FOLDERS, _NO_LINKS = 0x01000000, 0x02000000
_MASK = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLY_FOLDERS | _NO_LINKS
_ROOT_WENT = _DELETE_SELF | _MOVE_SELF
_EVENT = struct.Struct("=iIII")
_READ_BYTES = 256 * 1024

_libc = ctypes.CDLL(None, use_errno=True)
IS_HERE = hasattr(_libc, "inotify_init1")


class Inotify:
    """Changes below a root, but for what rules leave out. Close it.

    Args:
        root: Of the tree.
        texts: What each of its folders adds to the rules.

    Attributes:
        ended: Of what was read last, the files whose writers had closed them by then.
        has_root_gone: Whether the root itself was moved or removed: nothing more is noted of what is at its path.

    Raises:
        OSError: The kernel has no such thing, or not for so many folders.
    """

    kind = "inotify"

    def __init__(self, root: Root, texts: TextSource) -> None:
        self._root = root
        self._texts = texts
        self._watched: dict[int, tuple[bytes, Rules]] = {}
        self.ended: set[bytes] = set()
        self.has_root_gone = False
        self.fd = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            self.refresh()
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """End the notes."""
        os.close(self.fd)

    def refresh(self) -> None:
        """Go by the rules of now: watch folders that are not left out any more, and only those."""
        before, self._watched = self._watched, {}
        self._watch_below(b"", Rules())
        for watch in before.keys() - self._watched.keys():
            _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> Iterator[bytes | None]:
        """The paths of changes that wait to be read, relative to the root; None where some were lost.

        The root's own, which is empty, says that the root is gone.

        Raises:
            OSError: There are more folders by now than can be watched.
        """
        self.ended = set()
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
        folder, rules = self._watched.get(watch, (None, Rules()))
        if mask & _IGNORED:
            self._watched.pop(watch, None)
        if folder == b"" and mask & _ROOT_WENT:
            self.has_root_gone = True
            yield b""
        if folder is None or not name or name.startswith(OWN_PREFIXES):
            return
        path = join(folder, name)
        if mask & _ON_FOLDER and mask & _MOVED_FROM:
            # Of one that was removed the kernel says so itself, and nothing was below.
            self._forget_below(path)
        if rules.ignores(path, is_folder=bool(mask & _ON_FOLDER)):
            return
        if mask & _ON_FOLDER and mask & (_CREATE | _MOVED_TO):
            # Before anybody is told to look there: what comes later is noted by the new watches.
            self._watch_below(path, rules)
        (self.ended.add if mask & _CLOSE_WRITE else self.ended.discard)(path)
        yield path

    def _watch_below(self, path: bytes, above: Rules) -> None:
        """Watch a folder and those in it; `above` are the rules it is under."""
        waiting = [(path, above)]
        while waiting:
            folder, rules = waiting.pop()
            try:
                fd = self._root.open_folder(folder)
            except OSError:
                continue
            try:
                if os.fstat(fd).st_dev == self._root.device:
                    # Before it is listed: what comes between the two would be in neither.
                    inner = self._watch(folder, fd, rules)
                    waiting += [(one, inner) for one in _folders_in(folder, fd, inner)]
            finally:
                os.close(fd)

    def _watch(self, folder: bytes, fd: int, above: Rules) -> Rules:
        """Watch one folder; returns the rules that hold in it."""
        # By its descriptor: a link that has taken its place is not followed.
        mask = _MASK if folder else _MASK | _ROOT_WENT
        watch = _libc.inotify_add_watch(self.fd, b"/proc/self/fd/%d/." % fd, mask)
        if watch < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            rules = above.inside(folder, self._texts(folder, fd, None))
        except OSError:
            rules = above
        self._watched[watch] = (folder, rules)
        return rules

    def _forget_below(self, path: bytes) -> None:
        """A folder that went is watched no more, or, if it was moved within the tree, under its new name."""
        for watch, (folder, _) in list(self._watched.items()):
            if folder == path or folder.startswith(path + b"/"):
                del self._watched[watch]
                _libc.inotify_rm_watch(self.fd, watch)


def _folders_in(folder: bytes, fd: int, rules: Rules) -> Iterator[bytes]:
    """The folders directly in a folder that are not left out."""
    try:
        with os.scandir(fd) as children:
            names = [os.fsencode(one.name) for one in children if one.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in names:
        path = join(folder, name)
        if not name.startswith(OWN_PREFIXES) and not rules.ignores(path, is_folder=True):
            yield path
