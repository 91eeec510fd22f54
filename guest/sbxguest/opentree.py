"""The trees a guest serves: an open folder, what waits beside it, and who watches it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from sbxguest import boundary
from sbxguest.app import Request, WireError
from sbxguest.fanotify import Fanotify
from sbxguest.feed import Feed, KernelFeed, ScanFeed, Source
from sbxguest.filepool import in_thread, owner_of, path_of
from sbxguest.jobviews import check_boot
from sbxguest.state import GuestSettings
from sbxguest.tree.apply import Applier
from sbxguest.tree.blobs import Blobs
from sbxguest.tree.entry import Kind, Record, State
from sbxguest.tree.ignore import RuleTable
from sbxguest.tree.inotify import Inotify
from sbxguest.tree.journal import prune as prune_journals
from sbxguest.tree.root import OWN_PREFIXES, READ_FLAGS, Root, look, split
from sbxguest.tree.scan import ScanOptions, scan
from sbxguest.tree.stage import Stage, stage_paths
from sbxguest.tree.trash import Trash

_MAX_TREES = 16
_MAX_OWN = 20_000
_ID_FILE = "id"


class OwnWrites:
    """What batches left where, so that the feed does not tell their sender. From any thread; bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: OrderedDict[bytes, State | None] = OrderedDict()

    def note(self, path: bytes, state: State | None) -> None:
        """What an operation left at a path."""
        with self._lock:
            self._states[path] = state
            self._states.move_to_end(path)
            if len(self._states) > _MAX_OWN:
                self._states.popitem(last=False)

    def is_still_there(self, path: bytes, found: os.stat_result | None) -> bool:
        """Whether what stands at a path is what an operation left there."""
        with self._lock:
            if path not in self._states:
                return False
            is_same = _is_left(self._states[path], found)
            if not is_same:
                del self._states[path]
            return is_same


def _is_left(state: State | None, found: os.stat_result | None) -> bool:
    if state is None or found is None:
        return state is None and found is None
    stamp = state.stamp
    if stamp is None or stamp.inode != found.st_ino:
        return False
    return state.kind is Kind.DIR or (stamp.mtime_ns, stamp.ctime_ns) == (found.st_mtime_ns, found.st_ctime_ns)


class LeftOut(RuleTable):
    """What a sync leaves out, by rules that were sent along."""

    def holds(self, path: bytes) -> bool:
        """Whether a path is left out, or is below one that is. Of a folder itself this may say no when it is."""
        rules = self.inside(split(path)[0])
        return rules is None or rules.ignores(path, is_folder=False)


class OpenTree:
    """One tree. Made in a thread; let go of when nobody uses it any more."""

    def __init__(self, path: str, settings: GuestSettings) -> None:
        self.root = Root(path)
        try:
            self.stage = Stage(self.root, _places(self.root, settings))
        except BaseException:
            self.root.close()
            raise
        weakref.finalize(self, _let_go, self.root, self.stage)
        self.trash = Trash(self.stage)
        self.applier = Applier(self.root, self.stage, self.trash, own=owner_of(settings).apply)
        self.blobs = Blobs(self.stage, self.trash.make_room)
        self.own_writes = OwnWrites()
        self.left_out = LeftOut({})
        self.turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self.id = _kept_id(self.stage)
        self._may_watch_all = not settings.root
        self._feed: KernelFeed | ScanFeed | None = None
        self._opening = asyncio.Lock()
        prune_journals(self.stage)

    def turn(self, batch_id: str) -> asyncio.Lock:
        """What one batch is under while it is made; it may come twice at a time."""
        lock = self.turns.get(batch_id)
        if lock is None:
            lock = self.turns[batch_id] = asyncio.Lock()
        return lock

    async def feed(self) -> Feed:
        """What changes here; opened when it is first asked for."""
        async with self._opening:
            if self._feed is None or (isinstance(self._feed, KernelFeed) and self._feed.is_broken):
                source = await in_thread(self._open_source) if self._feed is None else None
                self._feed = ScanFeed(self.look) if source is None else KernelFeed(source, self.wants, self.is_news)
            return self._feed

    def leave_out(self, texts: Mapping[bytes, tuple[bytes, ...]]) -> None:
        """From here on, changes of what these rules leave out are not told."""
        if texts != self.left_out.texts:
            self.left_out = LeftOut(texts)
            if self._feed is not None:
                self._feed.refresh()

    @property
    def feed_kind(self) -> str:
        """How changes are noticed; empty as long as nobody has asked."""
        return self._feed.kind if self._feed is not None else ""

    def close(self) -> None:
        """End the feed; the rest goes with its last user."""
        if self._feed is not None:
            self._feed.close()

    def look(self) -> Iterator[Record]:
        """What stands here, without contents."""
        return scan(self.root, (b"",), self._options())

    def _options(self) -> ScanOptions:
        return ScanOptions(has_digests=False, texts=self.left_out.read)

    def wants(self, path: bytes) -> bool:
        """Whether anybody asks for what changes at a path."""
        is_own = any(name.startswith(OWN_PREFIXES) for name in path.split(b"/"))
        return not (is_own or self.left_out.holds(path))

    def is_news(self, path: bytes) -> bool:
        """Whether a change of a path is not one that an operation made."""
        return not self.own_writes.is_still_there(path, self._found(path))

    def _found(self, path: bytes) -> os.stat_result | None:
        folder, name = split(path)
        try:
            fd = self.root.open_folder(folder)
        except OSError:
            return None
        try:
            return look(name, fd)
        except OSError:
            return None
        finally:
            os.close(fd)

    def _open_source(self) -> Source | None:
        if self._may_watch_all:
            with contextlib.suppress(OSError):
                return Fanotify(self.root, (self.stage.incoming_fd, self.stage.batches_fd))
        with contextlib.suppress(OSError):
            return Inotify(self.root, lambda folder, _fd, _names: self.left_out.read(folder))
        return None


def _let_go(root: Root, stage: Stage) -> None:
    stage.close()
    root.close()


def _is_in_place(tree: OpenTree) -> bool:
    return tree.root.is_in_place


def _places(root: Root, settings: GuestSettings) -> tuple[str, ...]:
    """Where the stage may be; never above what is the sandbox's own."""
    paths = stage_paths(root, outside=os.path.realpath(settings.workdir))
    return tuple(path for path in paths if boundary.is_below(path, settings.root, follows=False))


def _kept_id(stage: Stage) -> str:
    """A random word that lives as long as the stage."""
    with contextlib.suppress(FileExistsError):
        fd = os.open(_ID_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=stage.fd)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(8))
    with os.fdopen(os.open(_ID_FILE, READ_FLAGS, dir_fd=stage.fd)) as file:
        return file.read(64)


class TreeTable:
    """The trees in use, by path."""

    def __init__(self) -> None:
        self._trees: OrderedDict[str, OpenTree] = OrderedDict()
        self._opening = asyncio.Lock()

    async def find(self, request: Request) -> OpenTree:
        """The tree a request means.

        Raises:
            WireError: 404 there is none, 409 another one is there by now, 410 another boot.
        """
        check_boot(request)
        path = await in_thread(os.path.realpath, path_of(request))
        async with self._opening:
            tree = self._trees.get(path)
            if tree is None or not await in_thread(_is_in_place, tree):
                self._drop(path)
                tree = self._trees[path] = await in_thread(OpenTree, path, request.guest.state.settings)
            self._trees.move_to_end(path)
            if len(self._trees) > _MAX_TREES:
                self._drop(next(iter(self._trees)))
        asked = request.query.get("root", "")
        if asked and asked != tree.root.identity:
            raise WireError(
                409,
                "root_changed",
                "another folder stands there than the one that is meant; nothing was done",
                hint="say hello to it again",
                details={"root": tree.root.identity},
            )
        return tree

    def _drop(self, path: str) -> None:
        tree = self._trees.pop(path, None)
        if tree is not None:
            tree.close()


trees = TreeTable()
