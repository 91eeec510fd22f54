"""Operations made on a tree, each only while what is expected stands at its path, and each in one step.

What an operation takes away goes to the trash by the very step that takes it away, so that nothing is lost wherever the
process ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sbxguest.tree.contents import Unstable, digest_of, open_file
from sbxguest.tree.entry import Entry, Kind, State
from sbxguest.tree.moves import move_to_free_name
from sbxguest.tree.ops import Op, OpKind, Outcome, Result
from sbxguest.tree.report import TreeError, code_of
from sbxguest.tree.root import FOLDER_FLAGS, Root, file_state, look, split, state_of
from sbxguest.tree.stage import Stage
from sbxguest.tree.swap import Changed, put_in_place, take_away
from sbxguest.tree.trash import Trash, bytes_on_disk

_NEW_MODE = 0o644
_EXECUTABLE_BITS = 0o111


class _Mismatch(Exception):
    """Something else stands there. `found` is what; None for nothing, or, with a code, for what is not synced."""

    def __init__(self, found: State | None, code: str = "") -> None:
        super().__init__(code)
        self.found = found
        self.code = code


class _AlreadyDone(Exception):
    """What is asked for stands there."""

    def __init__(self, state: State | None) -> None:
        super().__init__()
        self.state = state


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation that is being made; see `Applier.apply`."""

    batch_id: str
    seq: int
    op: Op
    content: str
    is_dressed: bool
    problem: str


def _nobody(_: int) -> None:
    return


def _go_on() -> None:
    return


class Applier:
    """Makes operations on a tree, one at a time. From any thread.

    Args:
        root: Of the tree; closed by its owner, as is `stage`.
        stage: Where contents wait.
        trash: Where what is taken away goes.
        own: Given each new file's and folder's descriptor, to set its owner.
        check: Called now and then while a file is read; what it raises ends the operation.
    """

    def __init__(
        self,
        root: Root,
        stage: Stage,
        trash: Trash,
        *,
        own: Callable[[int], None] = _nobody,
        check: Callable[[], None] = _go_on,
    ) -> None:
        self.root = root
        self.stage = stage
        self.trash = trash
        self._own = own
        self._check = check
        self._lock = threading.RLock()
        self._folder: tuple[bytes, int] = (b"", -1)

    def own(self, fd: int) -> None:
        """Give what is new to its owner."""
        self._own(fd)

    def dress(self, fd: int, is_executable: bool) -> None:
        """Give a content the owner and mode of a new file."""
        self._own(fd)
        os.fchmod(fd, _with_bit(_NEW_MODE, is_executable))

    def apply(
        self, batch_id: str, seq: int, op: Op, content: str = "", *, is_dressed: bool = False, problem: str = ""
    ) -> Result:
        """Make one operation.

        Args:
            batch_id: What it is part of, for the trash.
            seq: Its number there.
            op: What to do.
            content: Of a `PUT`: a name in the stage's `incoming`, checked already. It is used up in any case.
            is_dressed: Whether the content went through `dress` already.
            problem: Why there is no content; said where it is needed.
        """
        with self._lock:
            try:
                return Result(seq, Outcome.DONE, self._make(_Step(batch_id, seq, op, content, is_dressed, problem)))
            except _AlreadyDone as exc:
                result = Result(seq, Outcome.DONE, exc.state)
            except _Mismatch as exc:
                result = Result(seq, Outcome.MISMATCH, exc.found, exc.code)
            except TreeError as exc:
                result = Result(seq, Outcome.FAILED, None, exc.code)
            except (OSError, Unstable) as exc:
                self._leave()
                result = Result(seq, Outcome.FAILED, None, code_of(exc) if isinstance(exc, OSError) else "unstable")
        if content:
            self.stage.drop(content)
        return result

    def put_folder(self, content: str, path: bytes) -> None:
        """Put a folder that waits in the stage's `incoming`, with all that is in it, where nothing has its name.

        Raises:
            OSError: Something has, or the disk refuses; nothing was done.
        """
        folder, name = split(path)
        with self._lock:
            try:
                move_to_free_name(content, self.stage.incoming_fd, name, self._open(folder))
            except OSError:
                self._leave()
                raise

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes the tree during the block: in two folders at a time, none could be held open."""
        with self._lock:
            try:
                yield
            finally:
                self.forget()

    def forget(self) -> None:
        """Let go of the folders that are held open from one operation to the next. Do so when a pause comes."""
        # Another batch may be in that folder just now.
        with self._lock:
            self._leave()
            self.trash.let_go()

    def _leave(self) -> None:
        path, fd = self._folder
        if fd >= 0:
            os.close(fd)
        self._folder = (path, -1)

    def _open(self, path: bytes) -> int:
        if self._folder[1] < 0 or self._folder[0] != path:
            self._leave()
            self._folder = (path, self.root.open_folder(path))
        return self._folder[1]

    def _make(self, step: _Step) -> State | None:
        op = step.op
        folder, name = split(op.path)
        fd = self._open(folder)
        # What is to be new is made without a look: the step itself says if something has its name.
        found = None if op.expect is None and op.goal is not None and not step.problem else self._expect(op, name, fd)
        if step.problem:
            raise TreeError(step.problem, "the content is not there")
        if found is not None and stat.S_ISDIR(found.st_mode) is not (op.kind is OpKind.RMDIR):
            number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.ENOTDIR
            raise OSError(number, os.strerror(number))
        placed: os.stat_result | None = None
        match op.kind:
            case OpKind.MKDIR:
                self._make_folder(op, name, fd)
            case OpKind.RMDIR:
                os.rmdir(name, dir_fd=fd)
            case OpKind.CHMOD:
                self._change_mode(op, name, fd, found)
            case _:
                placed = self._replace(step, name, fd, found)
        return self._made(op, name, fd, placed)

    def _made(self, op: Op, name: bytes, fd: int, placed: os.stat_result | None) -> State | None:
        """What stands there after an operation; `placed` is what was put there, as the disk told before."""
        if op.goal is None:
            return None
        found = look(name, fd)
        if not stat.S_ISREG(found.st_mode):
            return state_of(found, name, fd)
        # The content of a changed mode is what was expected; an expectation by stamp alone does not say it.
        content = op.expect.content if op.kind is OpKind.CHMOD and op.expect is not None else op.goal.content
        return file_state(found, content, is_exact=self._is_proved_to_be(placed, found))

    def _is_proved_to_be(self, placed: os.stat_result | None, found: os.stat_result) -> bool:
        """Whether nobody wrote to a file between the two looks, and whatever is written later shows in its stamp."""
        is_same = placed is not None and (placed.st_ino, placed.st_mtime_ns) == (found.st_ino, found.st_mtime_ns)
        return is_same and self.stage.has_exact_times

    def _make_folder(self, op: Op, name: bytes, fd: int) -> None:
        try:
            os.mkdir(name, 0o755, dir_fd=fd)
        except FileExistsError:
            self._expect(op, name, fd)
            raise
        inner = os.open(name, FOLDER_FLAGS, dir_fd=fd)
        try:
            self._own(inner)
        finally:
            os.close(inner)

    def _change_mode(self, op: Op, name: bytes, fd: int, found: os.stat_result | None) -> None:
        file, now = open_file(name, fd)
        try:
            if found is None or now.st_ino != found.st_ino:
                raise _Mismatch(file_state(now))
            os.fchmod(file, _with_bit(now.st_mode, op.goal is not None and op.goal.is_executable))
        finally:
            os.close(file)

    def _replace(self, step: _Step, name: bytes, fd: int, found: os.stat_result | None) -> os.stat_result | None:
        """`PUT`, `LINK` and `DELETE`: the new comes, the old goes, or both. Returns what was told of the new before."""
        op, incoming = step.op, self.stage.incoming_fd
        new = self._prepared(step, found)
        try:
            if found is None:
                move_to_free_name(new, incoming, name, fd)
                return None
            entry = Entry(op.path, _old_state(op, found, name, fd))
            placed = self._dressed_like(found, step, new) if new else None
            with self.trash.slot(step.batch_id, step.seq, entry, bytes_on_disk(found)) as (slot, slot_fd):
                if placed is not None:
                    put_in_place(new, incoming, placed.st_ino, name, fd, found, slot, slot_fd)
                else:
                    take_away(name, fd, found, slot, slot_fd)
            return placed
        except (FileExistsError, Changed):
            self._expect(op, name, fd)
            # What was expected stands there again: somebody else is at it, and the caller may ask once more.
            raise TreeError("busy", "it is being changed") from None
        finally:
            if new != step.content:
                self.stage.drop(new)

    def _prepared(self, step: _Step, found: os.stat_result | None) -> str:
        """The name in `incoming` of what is to take the place; empty for nothing."""
        goal, incoming = step.op.goal, self.stage.incoming_fd
        if goal is None:
            return ""
        if goal.kind is Kind.LINK:
            link = self.stage.new_name()
            os.symlink(goal.content, link, dir_fd=incoming)
            return link
        is_new = found is None or not stat.S_ISREG(found.st_mode)
        if is_new and not step.is_dressed:
            with self._content(step) as fd:
                self.dress(fd, goal.is_executable)
        return step.content

    def _dressed_like(self, found: os.stat_result, step: _Step, new: str) -> os.stat_result:
        """Give a content owner and mode of the file it replaces; returns what the disk told of it, or of a link."""
        fresh = look(new, self.stage.incoming_fd)
        if stat.S_ISREG(found.st_mode) and stat.S_ISREG(fresh.st_mode):
            mode = _with_bit(found.st_mode & 0o777, step.op.goal is not None and step.op.goal.is_executable)
            # Most files have what every new one gets.
            if stat.S_IMODE(fresh.st_mode) != mode or _owners(fresh) != _owners(found):
                with self._content(step) as fd:
                    _keep_owner(fd, found)
                    os.fchmod(fd, mode)
        return fresh

    @contextlib.contextmanager
    def _content(self, step: _Step) -> Iterator[int]:
        fd = os.open(step.content, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.stage.incoming_fd)
        try:
            yield fd
        finally:
            os.close(fd)

    def _expect(self, op: Op, name: bytes, fd: int) -> os.stat_result | None:
        """What stands there, if that is what was expected.

        Raises:
            _AlreadyDone: What was asked for stands there. _Mismatch: Something else does.
        """
        try:
            found = look(name, fd)
        except FileNotFoundError:
            if op.expect is None:
                return None
            raise (_AlreadyDone(None) if op.goal is None else _Mismatch(None)) from None
        # Of nearly everything this is all that is asked.
        if op.expect is not None and op.expect.is_still(found):
            return found
        state = state_of(found, name, fd)
        if state is None:
            raise _Mismatch(None, "special_file")
        if _is_proved(op.expect, state):
            return found
        if state.kind is Kind.FILE and _is_content_needed(op):
            digest, found, at_ns = digest_of(name, fd, self._check)
            state = file_state(found, digest, at_ns)
        if op.goal == state:
            raise _AlreadyDone(state)
        if op.expect is None or not _has_content(op.expect) or op.expect != state:
            raise _Mismatch(state)
        return found


def _old_state(op: Op, found: os.stat_result, name: bytes, fd: int) -> State:
    """What goes to the trash, with the content that was expected of it."""
    if stat.S_ISREG(found.st_mode):
        return file_state(found, op.expect.content if op.expect is not None else b"")
    state = state_of(found, name, fd)
    if state is None:
        raise _Mismatch(None, "special_file")
    return state


def _owners(found: os.stat_result) -> tuple[int, int]:
    return found.st_uid, found.st_gid


def _keep_owner(fd: int, found: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):
        if os.geteuid() == 0:
            os.fchown(fd, found.st_uid, found.st_gid)


def _is_proved(expect: State | None, state: State) -> bool:
    """Whether the stamps alone say that what is expected stands there."""
    if expect is None or expect.stamp is None or expect.stamp.is_racy:
        return False
    return expect.kind is state.kind and expect.stamp == state.stamp


def _has_content(state: State) -> bool:
    return state.kind is Kind.DIR or bool(state.content)


def _is_content_needed(op: Op) -> bool:
    """Whether reading the file can change the answer."""
    return any(state is not None and state.kind is Kind.FILE and state.content for state in (op.expect, op.goal))


def _with_bit(mode: int, is_executable: bool) -> int:
    """Permission bits with who may read also being allowed, or nobody allowed, to execute."""
    mode = stat.S_IMODE(mode)
    return mode | ((mode & 0o444) >> 2) if is_executable else mode & ~_EXECUTABLE_BITS
