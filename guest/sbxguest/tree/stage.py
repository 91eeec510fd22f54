"""The folder beside a tree in which contents wait until they are whole, and what was replaced or deleted is kept.

It is on the tree's own mount, so that everything moves in one step, and belongs to whoever serves the tree alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hmac
import itertools
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable

from sbxguest.tree.codec import is_zeros
from sbxguest.tree.entry import new_digest
from sbxguest.tree.exact import has_exact_times
from sbxguest.tree.report import TreeError, code_of, shown
from sbxguest.tree.root import FOLDER_FLAGS, Root

STAGE_PREFIX = ".sbx-stage-"
_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_syncfs = getattr(ctypes.CDLL(None), "syncfs", None)
_CHUNK_BYTES = 1024 * 1024
_HOLE_BYTES = 64 * 1024
STAGE_FOLDERS = ("incoming", "blobs", "trash", "batches")


def stage_paths(root: Root, *, outside: str = "") -> tuple[str, ...]:
    """Where a stage may be: beside the tree, else, where that is another mount or not ours, in it.

    Args:
        root: Of the tree.
        outside: A folder beside which it is to be, if the tree is in that: what is in there is shown to people.
    """
    mark = f"{STAGE_PREFIX}{zlib.crc32(os.fsencode(root.path)):08x}"
    folders = [os.path.dirname(root.path), root.path]
    if outside and root.path.startswith(outside.rstrip("/") + "/"):
        folders.insert(0, os.path.dirname(outside.rstrip("/")))
    return tuple(os.path.join(folder, mark) for folder in folders)


class Stage:
    """The open folders of a stage. Close it.

    Args:
        root: Of the tree.
        paths: Where it may be; the first that serves is taken, and made if need be.

    Attributes:
        has_exact_times: Whether stamps of this disk prove something from the first moment on.

    Raises:
        TreeError: None serves.
    """

    def __init__(self, root: Root, paths: Iterable[str]) -> None:
        refusals: list[str] = []
        for path in paths:
            try:
                self.fd, self._folders = _opened_at(path, root)
            except OSError as exc:
                refusals.append(f"{shown(path)}: {os.strerror(exc.errno or 0)}")
                continue
            self.path = path
            break
        else:
            raise TreeError("access_denied", f"there is no place for a stage: {'; '.join(refusals)}")
        # Several processes may use one stage.
        self._mark, self._numbers = f"{secrets.token_hex(8)}-", itertools.count()
        self._clean()
        self.has_exact_times = self._found_exact()

    def close(self) -> None:
        """Close it; what it holds stays."""
        for fd in (*self._folders.values(), self.fd):
            os.close(fd)
        self._folders.clear()
        self.fd = -1

    @property
    def incoming_fd(self) -> int:
        """Of the folder for what is on its way. Emptied whenever the first one opens the stage."""
        return self._folders["incoming"]

    @property
    def blobs_fd(self) -> int:
        """Of the folder for large contents."""
        return self._folders["blobs"]

    @property
    def trash_fd(self) -> int:
        """Of the folder for what was replaced or deleted."""
        return self._folders["trash"]

    @property
    def batches_fd(self) -> int:
        """Of the folder for what became of batches."""
        return self._folders["batches"]

    @property
    def is_case_sensitive(self) -> bool:
        """Whether names here differ by case."""
        try:
            os.stat(STAGE_FOLDERS[0].upper(), dir_fd=self.fd)
        except FileNotFoundError:
            return True
        return False

    def new_name(self) -> str:
        """A name nothing has in `incoming`."""
        return f"{self._mark}{next(self._numbers):x}"

    def drop(self, name: str) -> None:
        """Remove something from `incoming`, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.incoming_fd)

    def drop_all(self, name: str) -> None:
        """Remove something from `incoming` with all that is in it, as far as the disk lets that be done."""
        waiting, folders = [os.fsencode(name)], list[bytes]()
        while waiting:
            folder = waiting.pop()
            folders.append(folder)
            waiting += self._emptied(folder)
        for folder in reversed(folders):
            with contextlib.suppress(OSError):
                os.rmdir(folder, dir_fd=self.incoming_fd)

    def _emptied(self, folder: bytes) -> list[bytes]:
        """Remove what is in a folder, or what is none itself; returns the folders that are in it."""
        try:
            fd = os.open(folder, FOLDER_FLAGS, dir_fd=self.incoming_fd)
        except OSError:
            self.drop(os.fsdecode(folder))
            return []
        try:
            with os.scandir(fd) as children:
                found = [(os.fsencode(one.name), one.is_dir(follow_symlinks=False)) for one in children]
            for child, is_folder in found:
                if not is_folder:
                    with contextlib.suppress(OSError):
                        os.unlink(child, dir_fd=fd)
            return [folder + b"/" + child for child, is_folder in found if is_folder]
        except OSError:
            return []
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Wait until all that was made of what waited here is on the disk."""
        if _syncfs is None or _syncfs(self.fd) != 0:
            os.sync()

    def _found_exact(self) -> bool:
        name = self.new_name()
        try:
            fd = os.open(name, _CREATE_FLAGS, 0o600, dir_fd=self.incoming_fd)
            try:
                return has_exact_times(fd)
            finally:
                os.close(fd)
                self.drop(name)
        except OSError:
            return False

    def _clean(self) -> None:
        """Remove what a killed process left on its way, if no other one is at it."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
        else:
            with contextlib.suppress(OSError):
                for name in os.listdir(self.incoming_fd):
                    self.drop_all(name)
        with contextlib.suppress(OSError):
            fcntl.flock(self.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _opened_at(path: str, root: Root) -> tuple[int, dict[str, int]]:
    """The descriptors of a stage and of its folders by name; of all of them or none."""
    fd = _open_at(path, root)
    folders: dict[str, int] = {}
    try:
        for name in STAGE_FOLDERS:
            folders[name] = _folder_in(fd, name)
        _hide_from_git(fd)
    except OSError:
        for opened in (*folders.values(), fd):
            os.close(opened)
        raise
    return fd, folders


def _open_at(path: str, root: Root) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    fd = os.open(path, FOLDER_FLAGS)
    try:
        found = os.fstat(fd)
        # Somebody else may have made it, to have a say in what lands in the tree.
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if not _is_same_mount(fd, root.fd):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    except BaseException:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.rmdir(path)
        raise
    return fd


def _is_same_mount(fd: int, other_fd: int) -> bool:
    """Whether things can be renamed from one to the other: asked with a name that does not exist."""
    name = secrets.token_hex(16)
    try:
        os.rename(name, name, src_dir_fd=fd, dst_dir_fd=other_fd)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _folder_in(fd: int, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=fd)
    return os.open(name, FOLDER_FLAGS, dir_fd=fd)


def _hide_from_git(fd: int) -> None:
    """A stage in the tree itself is nothing that anybody means to commit."""
    with contextlib.suppress(FileExistsError):
        note = os.open(".gitignore", _CREATE_FLAGS, 0o600, dir_fd=fd)
        with open(note, "wb") as file:
            file.write(b"*\n")


class Incoming:
    """A content that is coming in. `finish` or `abort` it.

    Args:
        stage: Where it waits.
        digest: What it must have.
        size_bytes: How long it must be.
        make_room: Called when the disk is full; says whether it is worth trying again.

    Raises:
        OSError: The disk refuses.
    """

    def __init__(self, stage: Stage, digest: bytes, size_bytes: int, make_room: Callable[[], bool]) -> None:
        self._stage = stage
        self._digest = digest
        self._left = size_bytes
        self._make_room = make_room
        self._hash = new_digest()
        self.name = stage.new_name()
        self._fd = os.open(self.name, _CREATE_FLAGS, 0o600, dir_fd=stage.incoming_fd)

    def dress(self, work: Callable[[int], None]) -> None:
        """Have its descriptor made ready for its place: mode and owner."""
        work(self._fd)

    @property
    def is_whole(self) -> bool:
        """Whether nothing more is to come."""
        return self._left == 0

    @property
    def left_bytes(self) -> int:
        """How much is still to come."""
        return self._left

    def write(self, piece: bytes) -> None:
        """Take the next bytes.

        Raises:
            OSError: The disk refuses, or more came than was said.
        """
        if len(piece) > self._left:
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        self._hash.update(piece)
        self._left -= len(piece)
        write_all(self._fd, piece, self._make_room)

    def finish(self) -> str:
        """Check the content; returns its name in `incoming`, for the caller to move away.

        Raises:
            TreeError: It is not what was said (`wrong_content`); it is gone then.
        """
        self._close()
        if self._left == 0 and hmac.compare_digest(self._hash.digest(), self._digest):
            return self.name
        self._stage.drop(self.name)
        raise _wrong_content()

    def abort(self) -> None:
        """Forget it. Safe to repeat, and after `finish` harmless only if the name was not used."""
        self._close()
        self._stage.drop(self.name)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def kept(
    stage: Stage,
    content: bytes,
    digest: bytes,
    make_room: Callable[[], bool],
    dress: Callable[[int], None] = lambda fd: None,
) -> str:
    """Put a content that is all there into `incoming`; returns its name there. See `Incoming`.

    Raises:
        TreeError: It has another digest (`wrong_content`). OSError: The disk refuses. Nothing is left then.
    """
    if new_digest(content).digest() != digest:
        raise _wrong_content()
    name = stage.new_name()
    fd = os.open(name, _CREATE_FLAGS, 0o600, dir_fd=stage.incoming_fd)
    try:
        dress(fd)
        write_all(fd, content, make_room)
    except OSError:
        stage.drop(name)
        raise
    finally:
        os.close(fd)
    return name


def _wrong_content() -> TreeError:
    return TreeError("wrong_content", "a content is not the one that was announced")


def copied(fd: int, stage: Stage, digest: bytes, size_bytes: int, make_room: Callable[[], bool]) -> str:
    """Copy a file to `incoming`, checking it on the way; returns its name there. See `Incoming`.

    Read and written, for not every kernel copies by itself.

    Raises:
        TreeError: It has another content (`wrong_content`). OSError: The disk refuses. Nothing is left then.
    """
    copy = Incoming(stage, digest, size_bytes, make_room)
    try:
        while not copy.is_whole and (chunk := os.read(fd, min(_CHUNK_BYTES, copy.left_bytes))):
            copy.write(chunk)
    except OSError:
        copy.abort()
        raise
    return copy.finish()


def write_all(fd: int, piece: bytes, make_room: Callable[[], bool]) -> None:
    """Write all of it; where the disk is full, after making room.

    Raises:
        OSError: The disk refuses.
    """
    if len(piece) >= _HOLE_BYTES and is_zeros(piece):
        # What was sparse where it comes from takes no room here, either.
        os.ftruncate(fd, os.lseek(fd, len(piece), os.SEEK_CUR))
        return
    view: bytes | memoryview = piece
    while view:
        try:
            # Small ones are written at once, nearly always.
            written = os.write(fd, view)
            if written == len(view):
                return
            view = memoryview(view)[written:]
        except OSError as exc:
            if code_of(exc) != "disk_full" or not make_room():
                raise
