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
from pathlib import Path as FilePath

from sbxguest.tree import Outcome, Result, State, TreeError
from sbxguest.tree.apply import Applier
from sbxguest.tree.stage import Incoming, Stage, stage_paths
from sbxguest.tree.trash import Trash
from sbxtui.core.errors import AccessDenied
from sbxtui.guest.tree import GuestTree, Wanted
from sbxtui.home import private_dir
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.model import Change, Op, Path
from sbxtui.services.sync.transfer import Made, in_batches, wire_op

_CHUNK_BYTES = 1024 * 1024


class Intake:
    """Makes changes in a folder of this machine. Close it. Its methods are used one at a time.

    Args:
        folder: Where the changes are made.
        state_dir: Where things wait and the trash is, if that is on the folder's disk; else it is beside the folder.

    Raises:
        AccessDenied: There is no place for them.
    """

    def __init__(self, folder: Folder, state_dir: FilePath) -> None:
        private_dir(state_dir.parent)
        self._folder = folder
        self._state_dir = state_dir
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
        self.trash = Trash(self._stage)
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
        for batch in in_batches(changes, there):
            contents, failures = await self._receive(batch, there, guest, on_bytes)
            made = await asyncio.to_thread(self._apply, batch, here, contents, failures)
            await asyncio.to_thread(self.trash.prune)
            yield made

    def restore(self, changes: Sequence[Change], here: Mapping[Path, State]) -> list[Made]:
        """Make changes in their order, with contents from the trash. Blocking."""
        self._follow_root()
        contents: dict[Path, str] = {}
        failures: dict[Path, str] = {}
        for change in changes:
            if change.op is Op.PUT and change.entry is not None:
                try:
                    contents[change.path] = self._from_trash(change.entry.content)
                except OSError:
                    failures[change.path] = "not_in_trash"
        return self._apply(changes, here, contents, failures)

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
        self, batch: Sequence[Change], there: Mapping[Path, State], guest: GuestTree, on_bytes: Callable[[int], None]
    ) -> tuple[dict[Path, str], dict[Path, str]]:
        """Bring in the contents of a batch: names in the stage by path, and why others did not come."""
        contents: dict[Path, str] = {}
        failures: dict[Path, str] = {}
        puts = [change for change in batch if change.op is Op.PUT and change.entry is not None]
        if not puts:
            return contents, failures
        receiver = _Receiver(self._stage, puts, there)
        try:
            wanted = [Wanted(change.path, change.entry.content) for change in puts if change.entry is not None]
            async with aclosing(guest.read(wanted)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Result):
                        path, name, code = await asyncio.to_thread(receiver.end, piece)
                        if name:
                            contents[path] = name
                        else:
                            failures[path] = code
                    else:
                        on_bytes(len(piece))
                        await asyncio.to_thread(receiver.take, piece)
        finally:
            receiver.abort()
        failures.update((change.path, "vanished") for change in puts if change.path not in {**contents, **failures})
        return contents, failures

    def _apply(
        self,
        batch: Sequence[Change],
        here: Mapping[Path, State],
        contents: Mapping[Path, str],
        failures: Mapping[Path, str],
    ) -> list[Made]:
        batch_id = secrets.token_hex(16)
        made: list[Made] = []
        for seq, change in enumerate(batch):
            if change.path in failures:
                made.append(Made(change, Result(seq, Outcome.FAILED, None, failures[change.path])))
                continue
            op = wire_op(change, here)
            made.append(Made(change, self._applier.apply(batch_id, seq, op, contents.get(change.path, ""))))
        self._applier.forget()
        # Before it is noted as agreed: a machine that loses its power then must not have the note without the files.
        self._stage.sync()
        return made


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
            self._failure = "disk_full" if exc.errno == 28 else "io_error"

    def end(self, result: Result) -> tuple[Path, str, str]:
        """The file that is on is at its end: its path, and its name in the stage or why there is none."""
        if self._number >= len(self._puts):
            return b"", "", "io_error"
        change = self._puts[self._number]
        try:
            if result.outcome is not Outcome.DONE or self._failure:
                return change.path, "", self._failure or result.code or "changed_meanwhile"
            incoming = self._incoming or self._begin()
            self._incoming = incoming
            return change.path, incoming.finish(), ""
        except TreeError as exc:
            return change.path, "", exc.code
        except OSError:
            return change.path, "", "io_error"
        finally:
            is_failed = result.outcome is not Outcome.DONE or bool(self._failure)
            if is_failed:
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
        seen = self._there.get(change.path)
        size_bytes = seen.stamp.size_bytes if seen is not None and seen.stamp is not None else 0
        content = change.entry.content if change.entry is not None else b""
        return Incoming(self._stage, content, size_bytes, lambda: False)
