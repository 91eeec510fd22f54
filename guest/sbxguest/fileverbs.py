"""The blocking half of `POST /v2/files/op`: mkdir, rm, mv, cp and walking folders. Trees of any depth and width."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from sbxguest.fileops import (
    FileError,
    Owner,
    entry,
    from_os_error,
    make_parents,
    open_regular,
    refuse_outside,
    translated,
)
from sbxguest.filewrite import AtomicWriter, Journal, WriteOptions
from sbxguest.tree.report import TEMP_PREFIX, shown

_COPY_CHUNK_BYTES = 1024 * 1024
_NAMES_PER_PASS = 4096
# Open folders while removing; deeper ones are moved up first, so that depth costs no descriptors.
_MAX_OPEN_FOLDERS = 48
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100


@dataclass(frozen=True, slots=True)
class Scene:
    """What every verb works in; setting `stop` ends a long one early with `aborted`."""

    workdir: str
    root: str
    owner: Owner
    journal: Journal
    stop: threading.Event

    def check(self, path: str) -> None:
        """Raise FileError once `stop` is set."""
        if self.stop.is_set():
            raise FileError("aborted", 409, f"{shown(path)}: stopped half-way, the caller went away")


def make_directory(scene: Scene, path: str, *, mode: int | None, has_parents: bool) -> None:
    """Create a folder; with `has_parents` also those above it, and an existing one is fine.

    Raises:
        FileError: It exists (without `has_parents`), or cannot be made.
    """
    with translated(path):
        if has_parents:
            make_parents(path, scene.owner)
        try:
            os.mkdir(path)
        except FileExistsError:
            if has_parents and os.path.isdir(path):
                return
            raise
        scene.owner.apply(path)
        if mode is not None:
            os.chmod(path, mode)


def remove(scene: Scene, path: str, *, is_recursive: bool, is_forced: bool, has_consent: bool) -> None:
    """Remove a file, a link (never what it names) or, recursively, a folder.

    `is_forced`: a missing path is fine. `has_consent`: even the workdir or a folder above it, though never `/`.

    Raises:
        FileError: Refused, missing, a folder without `is_recursive`, or not removable; a tree may be half gone then.
    """
    with translated(path):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            if is_forced:
                return
            raise
        _refuse_precious(scene, path, found, has_consent=has_consent)
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(path)
            return
        if not is_recursive:
            raise FileError("is_a_directory", 409, f"{shown(path)}: is a directory; ask for a recursive removal")
        # `.` and `sub/..` are folders no rmdir takes by that name.
        folder = os.path.realpath(path)
        _empty_folder(scene, folder)
        os.rmdir(folder)


def _refuse_precious(scene: Scene, path: str, found: os.stat_result, *, has_consent: bool) -> None:
    """Compares by inode, so that no spelling (`.`, `sub/..`, `//`) gets around it."""
    if os.path.samestat(found, os.stat("/")):
        raise FileError("refused", 409, f"{shown(path)}: is the root of the sandbox")
    folder = os.path.realpath(scene.workdir)
    while folder != "/" and not has_consent:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(found, os.stat(folder)):
                raise FileError("refused", 409, f"{shown(path)}: is the workdir or holds it")
        folder = os.path.dirname(folder)


def _some_names(fd: int) -> list[str]:
    with os.scandir(fd) as found:
        return [one.name for one in itertools.islice(found, _NAMES_PER_PASS)]


def _open_folder(name: str, dir_fd: int | None = None) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)


def _empty_folder(scene: Scene, path: str) -> None:
    """Iterative and by descriptors: neither a deep tree nor a link swapped in half-way leads it astray."""
    stack: list[tuple[int, str, list[str]]] = [(_open_folder(path), "", [])]
    try:
        while stack:
            fd, own_name, names = stack[-1]
            if not names:
                scene.check(path)
                names.extend(_some_names(fd))
            if not names:
                stack.pop()
                os.close(fd)
                if stack:
                    os.rmdir(own_name, dir_fd=stack[-1][0])
                continue
            _remove_one(stack, names.pop())
    finally:
        for fd, _, _ in stack:
            os.close(fd)


def _remove_one(stack: list[tuple[int, str, list[str]]], name: str) -> None:
    fd = stack[-1][0]
    try:
        os.unlink(name, dir_fd=fd)
        return
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError) as exc:
        if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            raise exc from None
    if len(stack) >= _MAX_OPEN_FOLDERS:
        # The outermost folder is listed again until it is empty, so the moved one is found there.
        os.rename(name, TEMP_PREFIX + secrets.token_hex(8), src_dir_fd=fd, dst_dir_fd=stack[0][0])
        return
    stack.append((_open_folder(name, fd), name, []))


def move(scene: Scene, path: str, to: str, *, is_exclusive: bool, has_parents: bool) -> None:
    """Rename `path` to exactly `to`, in one step within a file system; `is_exclusive` never replaces anything.

    Raises:
        FileError: Refused, missing, or `to` is in the way. Across file systems a failure may leave a partial copy.
    """
    with translated(path):
        found = os.lstat(path)
        _refuse_precious(scene, path, found, has_consent=False)
    with translated(to):
        if has_parents:
            make_parents(to, scene.owner)
        try:
            _rename(path, to, is_exclusive=is_exclusive)
            return
        except OSError as exc:
            if exc.errno == errno.EINVAL:
                message = f"{shown(to)}: is inside {shown(path)}, which is being moved"
                raise FileError("refused", 409, message) from exc
            if exc.errno != errno.EXDEV:
                raise
    copy(scene, path, to, is_recursive=True, is_exclusive=is_exclusive, has_parents=False)
    remove(scene, path, is_recursive=True, is_forced=True, has_consent=False)


def _rename(path: str, to: str, *, is_exclusive: bool) -> None:
    if not is_exclusive:
        os.rename(path, to)
        return
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        ctypes.set_errno(0)
        if rename(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(to), _RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(number, os.strerror(number))
    # Without the call there is a gap between looking and renaming; nothing closes it for directories.
    if os.path.lexists(to):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(path, to)


def copy(scene: Scene, path: str, to: str, *, is_recursive: bool, is_exclusive: bool, has_parents: bool) -> list[str]:
    """Copy `path` to exactly `to`; into an existing folder a tree is merged. Modes and times are kept.

    A single link is followed, links within a tree are copied as links.

    Returns:
        Special files of a tree that were left out, relative to `path`.

    Raises:
        FileError: Refused, missing, `to` is in the way; a tree may be half copied then.
    """
    with translated(path):
        found = os.stat(path) if not is_recursive else os.lstat(path)
    with translated(to):
        if is_exclusive and os.path.lexists(to):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if os.path.exists(path) and os.path.exists(to) and os.path.samefile(path, to):
            raise FileError("refused", 409, f"{shown(path)} and {shown(to)} are the same file")
        if has_parents:
            make_parents(to, scene.owner)
    if stat.S_ISDIR(found.st_mode):
        if not is_recursive:
            raise FileError("is_a_directory", 409, f"{shown(path)}: is a directory; ask for a recursive copy")
        return _copy_tree(scene, path, to)
    if stat.S_ISLNK(found.st_mode):
        _copy_link(scene, path, to)
    else:
        _copy_file(scene, path, to)
    return []


def _copy_tree(scene: Scene, path: str, to: str) -> list[str]:
    source, target = os.path.realpath(path), os.path.realpath(to)
    if (target + "/").startswith(source.rstrip("/") + "/"):
        raise FileError("refused", 409, f"{shown(to)}: is inside {shown(path)}, which is being copied")
    left_out: list[str] = []
    locked: list[tuple[str, int]] = []
    pending = [""]
    while pending:
        folder = pending.pop()
        scene.check(path)
        # The tree may be merged into one that holds links.
        refuse_outside(os.path.join(to, folder), scene.root)
        _copy_folder(scene, os.path.join(path, folder), os.path.join(to, folder), locked)
        with translated(path), os.scandir(os.path.join(path, folder)) as children:
            for child in children:
                name = os.path.join(folder, child.name)
                if child.is_dir(follow_symlinks=False):
                    pending.append(name)
                elif child.is_symlink():
                    _copy_link(scene, child.path, os.path.join(to, name))
                elif child.is_file(follow_symlinks=False):
                    _copy_file(scene, child.path, os.path.join(to, name))
                else:
                    left_out.append(name)
    for folder, mode in reversed(locked):
        with translated(folder):
            os.chmod(folder, mode)
    return left_out


def _copy_folder(scene: Scene, path: str, to: str, locked: list[tuple[str, int]]) -> None:
    with translated(to):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if os.path.isdir(to):
            return
        os.mkdir(to.rstrip("/"))
        scene.owner.apply(to)
        os.chmod(to, mode | stat.S_IRWXU)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            locked.append((to, mode))


def _copy_link(scene: Scene, path: str, to: str) -> None:
    with translated(to):
        temp = os.path.join(os.path.dirname(to), TEMP_PREFIX + secrets.token_hex(8))
        os.symlink(os.readlink(path), temp)
        try:
            scene.owner.apply(temp)
            os.rename(temp, to)
        except OSError:
            os.unlink(temp)
            raise


def _copy_file(scene: Scene, path: str, to: str) -> None:
    refuse_outside(to, scene.root)
    fd, found = open_regular(path)
    try:
        options = WriteOptions(mode=stat.S_IMODE(found.st_mode), mtime_ns=found.st_mtime_ns, is_durable=False)
        writer = AtomicWriter(to, options, scene.owner, scene.journal)
        try:
            while chunk := os.read(fd, _COPY_CHUNK_BYTES):
                scene.check(path)
                writer.write([chunk])
            writer.commit()
        finally:
            writer.abort()
    finally:
        os.close(fd)


def walk(path: str, *, is_recursive: bool) -> Iterator[dict[str, object]]:
    """Entries of a folder in the disk's own order, names relative to it; a file yields itself. Links are not followed.

    A folder below that cannot be read is yielded as `{path, error}`; what vanished meanwhile is left out.

    Raises:
        FileError: `path` itself is missing or cannot be read.
    """
    pending: list[str] = []
    with translated(path):
        if not stat.S_ISDIR(os.stat(path).st_mode):
            yield entry(path, os.path.basename(path))
            return
        yield from _walk_folder(path, "", pending if is_recursive else None)
    while pending:
        folder = pending.pop()
        try:
            yield from _walk_folder(path, folder, pending)
        except FileNotFoundError:
            continue
        except OSError as exc:
            yield {"path": folder, "error": from_os_error(exc, folder).code}


def _walk_folder(root: str, folder: str, pending: list[str] | None) -> Iterator[dict[str, object]]:
    with os.scandir(os.path.join(root, folder)) as children:
        for child in children:
            name = os.path.join(folder, child.name)
            try:
                seen = entry(child.path, name)
            except FileNotFoundError:
                continue
            yield seen
            if pending is not None and seen["kind"] == "dir":
                pending.append(name)


def look(path: str, *, follow: bool) -> dict[str, object] | None:
    """The entry at `path`, or None when nothing is there.

    Raises:
        FileError: It cannot be looked at.
    """
    try:
        return entry(path, path, follow=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise from_os_error(exc, path) from exc
