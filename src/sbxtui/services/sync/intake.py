"""Steps of a plan made in the folder of this machine, with contents from a sandbox that is not trusted.

Contents are checked before they take a place, nothing is followed out of the folder, and what they replace goes to the
trash of the link.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from sbxguest.tree import BadRecord, Outcome, Result, State, TreeError
from sbxguest.tree import Op as WireOp
from sbxguest.tree.apply import Applier
from sbxguest.tree.ops import check_op
from sbxguest.tree.report import code_of
from sbxguest.tree.stage import Incoming, Stage, kept, stage_paths
from sbxguest.tree.trash import MAX_BYTES, Trash
from sbxtui.core.errors import AccessDenied
from sbxtui.guest.tree import GuestTree, Wanted
from sbxtui.home import private_dir
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.made import CHANGED_MEANWHILE, Made
from sbxtui.services.sync.model import Change, Op, Path
from sbxtui.services.sync.transfer import in_batches, size_of, wire_op

_CHUNK_BYTES = 1024 * 1024
_NOT_IN_TRASH = "not_in_trash"


class Intake:
    """Makes changes in a folder of this machine. Close it. Its methods are used one at a time.

    Args:
        folder: Where the changes are made.
        state_dir: Where things wait and the trash is, if that is on the folder's disk; else it is beside the folder.
        max_trash_bytes: What the trash may hold beyond what was replaced last.

    Raises:
        AccessDenied: There is no place for them.
    """

    def __init__(self, folder: Folder, state_dir: FilePath, *, max_trash_bytes: int = MAX_BYTES) -> None:
        private_dir(state_dir.parent)
        self._folder = folder
        self._state_dir = state_dir
        self._max_trash_bytes = max_trash_bytes
        self._open()

    def close(self) -> None:
        """Close it; the trash stays."""
        self._applier.forget()
        self._stage.close()

    def _open(self) -> None:
        root = self._folder.root
        try:
            self._stage = Stage(root, (os.fspath(self._state_dir), *stage_paths(root)))
        except TreeError as exc:
            raise AccessDenied(f"files cannot be brought into {root.path}: {exc.message}") from exc
        self.trash = Trash(self._stage, max_bytes=self._max_trash_bytes)
        self._applier = Applier(root, self._stage, self.trash)

    def _follow_root(self) -> None:
        """If another folder is meant by now, that is where changes are made."""
        if self._applier.root is not self._folder.root:
            self.close()
            self._open()

    async def fetch(
        self,
        changes: Sequence[Change],
        here: Mapping[Path, State],
        there: Mapping[Path, State],
        guest: GuestTree,
        on_bytes: Callable[[int], None],
    ) -> AsyncIterator[list[Made]]:
        """Make changes in their order, with contents from the sandbox; yields what became of them, batch by batch.

        Args:
            changes: Of this machine's side.
            here: What stands here, with stamps: only while that is so, anything is changed.
            there: What the sandbox has, for the sizes.
            guest: Where contents come from.
            on_bytes: Called with how many bytes came.

        Raises:
            SbxError: The sandbox does not answer. What was yielded is done.
        """
        self._follow_root()
        taken = _Taken()
        for batch in in_batches(changes, there):
            try:
                await self._receive(batch, there, guest, on_bytes, taken)
                made = await asyncio.to_thread(self._apply, batch, here, taken)
            finally:
                self._drop(taken)
            await asyncio.to_thread(self.trash.prune, keep=taken.batch_id)
            yield made

    def restore(self, changes: Sequence[Change], here: Mapping[Path, State]) -> list[Made]:
        """Make changes in their order, with contents from the trash. Blocking."""
        self._follow_root()
        taken = _Taken()
        for change in changes:
            if change.op is Op.PUT and change.entry is not None and not self._is_in_trash(change.entry.content):
                taken.failures[change.path] = _NOT_IN_TRASH
        made: list[Made] = []
        try:
            for change in changes:
                self._take_from_trash(change, taken)
                made += self._apply([change], here, taken)
        finally:
            self._applier.forget()
            self._drop(taken)
        self.trash.prune(keep=taken.batch_id)
        return made

    def write(self, change: Change, content: bytes, here: Mapping[Path, State]) -> list[Made]:
        """Make one `PUT` with a content that was made here. Blocking."""
        self._follow_root()
        taken = _Taken()
        digest = change.entry.content if change.entry is not None else b""
        try:
            taken.contents[change.path] = kept(self._stage, content, digest, lambda: False)
        except OSError as exc:
            taken.failures[change.path] = code_of(exc)
        try:
            made = self._apply([change], here, taken)
        finally:
            self._drop(taken)
        self.trash.prune(keep=taken.batch_id)
        return made

    def trashed(self, digest: bytes, limit_bytes: int) -> bytes | None:
        """A content that is in the trash, if it is no longer than that. Blocking."""
        fd = self.trash.find(digest)
        if fd is None:
            return None
        with os.fdopen(fd, "rb", 0) as file:
            content = file.read(limit_bytes + 1)
        return content if content is not None and len(content) <= limit_bytes else None

    def _is_in_trash(self, digest: bytes) -> bool:
        fd = self.trash.find(digest)
        if fd is not None:
            os.close(fd)
        return fd is not None

    def _take_from_trash(self, change: Change, taken: _Taken) -> None:
        if change.op is not Op.PUT or change.entry is None or change.path in taken.failures:
            return
        try:
            taken.contents[change.path] = self._from_trash(change.entry.content)
        except OSError as exc:
            taken.failures[change.path] = _NOT_IN_TRASH if isinstance(exc, FileNotFoundError) else code_of(exc)

    def _drop(self, taken: _Taken) -> None:
        """Let go of contents that did not find their place."""
        for name in taken.contents.values():
            self._stage.drop(name)
        taken.contents.clear()

    def _from_trash(self, digest: bytes) -> str:
        fd = self.trash.find(digest)
        if fd is None:
            raise FileNotFoundError
        with os.fdopen(fd, "rb", 0) as file:
            incoming = Incoming(self._stage, digest, os.fstat(fd).st_size, lambda: False)
            try:
                while piece := file.read(_CHUNK_BYTES):
                    incoming.write(piece)
                return incoming.finish()
            except TreeError as exc:
                raise FileNotFoundError from exc
            except BaseException:
                incoming.abort()
                raise

    async def _receive(
        self,
        batch: Sequence[Change],
        there: Mapping[Path, State],
        guest: GuestTree,
        on_bytes: Callable[[int], None],
        taken: _Taken,
    ) -> None:
        """Bring in the contents of a batch, or learn why they do not come."""
        puts = [change for change in batch if change.op is Op.PUT and change.entry is not None]
        if not puts:
            return
        receiver = _Receiver(self._stage, puts, there)
        try:
            wanted = [Wanted(change.path, change.entry.content) for change in puts if change.entry is not None]
            async with aclosing(guest.read(wanted)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Result):
                        await asyncio.to_thread(receiver.end, piece, taken)
                    else:
                        on_bytes(len(piece))
                        await asyncio.to_thread(receiver.take, piece)
        finally:
            receiver.abort()
        for change in puts:
            if change.path not in taken.contents:
                taken.failures.setdefault(change.path, "vanished")

    def _apply(self, batch: Sequence[Change], here: Mapping[Path, State], taken: _Taken) -> list[Made]:
        made: list[Made] = []
        for change in batch:
            # One after the other over all that is done together: the trash names things by it.
            taken.seq += 1
            code = taken.failures.get(change.path, "")
            op = wire_op(change, here)
            if not code and not _makes_sense(op):
                code = "bad_record"
            if code:
                made.append(Made(change, Result(taken.seq, Outcome.FAILED, None, code)))
                continue
            content = taken.contents.get(change.path, "") if change.op is Op.PUT else ""
            made.append(Made(change, self._applier.apply(taken.batch_id, taken.seq, op, content)))
        self._applier.forget()
        return made


def _makes_sense(op: WireOp) -> bool:
    """Whether an operation can be made at all: what it is to bring about came from the sandbox."""
    try:
        check_op(op)
    except BadRecord:
        return False
    return True


@dataclass(slots=True)
class _Taken:
    """What is made together: its id in the trash, names in the stage by path, and why other contents did not come."""

    batch_id: str = field(default_factory=lambda: secrets.token_hex(16))
    seq: int = -1
    contents: dict[Path, str] = field(default_factory=dict)
    failures: dict[Path, str] = field(default_factory=dict)


class _Receiver:
    """Takes the contents of files that come one after the other, each checked at its end."""

    def __init__(self, stage: Stage, puts: Sequence[Change], there: Mapping[Path, State]) -> None:
        self._stage = stage
        self._puts = puts
        self._there = there
        self._incoming: Incoming | None = None
        self._number = 0
        self._failure = ""

    def take(self, piece: bytes) -> None:
        """The next piece of the file that is on. What the disk refuses ends that file only."""
        if self._failure or self._number >= len(self._puts):
            return
        try:
            if self._incoming is None:
                self._incoming = self._begin()
            self._incoming.write(piece)
        except OSError as exc:
            self._failure = code_of(exc)

    def end(self, result: Result, taken: _Taken) -> None:
        """The file that is on is at its end."""
        if self._number >= len(self._puts):
            return
        path, code = self._puts[self._number].path, self._failure
        if not code and result.outcome is not Outcome.DONE:
            code = result.code or CHANGED_MEANWHILE
        try:
            if not code:
                self._incoming = self._incoming or self._begin()
                taken.contents[path] = self._incoming.finish()
        except TreeError as exc:
            code = exc.code
        except OSError as exc:
            code = code_of(exc)
        if code:
            taken.failures[path] = code
            self.abort()
        self._incoming, self._failure = None, ""
        self._number += 1

    def abort(self) -> None:
        """Drop what is half there."""
        if self._incoming is not None:
            self._incoming.abort()
            self._incoming = None

    def _begin(self) -> Incoming:
        change = self._puts[self._number]
        content = change.entry.content if change.entry is not None else b""
        return Incoming(self._stage, content, size_of(self._there.get(change.path)), lambda: False)
