"""A tar stream into a folder, when the stream is hostile: nothing is made, changed or followed outside the folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import tarfile
import threading
from collections.abc import Callable, Iterable
from typing import Any

from sbxguest.tree.header import BLOCK_BYTES, apply_records, parse_head, pax_pairs, safe_parts, stays_inside
from sbxguest.tree.report import LEFT_OUT_KEY, MAX_PROBLEMS, TEMP_PREFIX, Problem, TreeError, TreeReport, code_of, shown

# Long names and pax records; anything larger is an attack on memory.
_MAX_RECORD_BYTES = 1024 * 1024
_ENTRIES_ALWAYS = 10_000
_FATAL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE}
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_GNU_LONG_NAME, _GNU_LONG_LINK = b"L", b"K"
_RECORD_TYPES = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE, _GNU_LONG_NAME, _GNU_LONG_LINK)


def _nothing(_: int | str) -> None:
    return


class Unpacker:
    """Takes a tar stream in pieces of any size and makes the tree below `root` (an existing folder).

    Every file appears in one step, replacing what had its name; folders are merged; no link on the way is followed.
    Absolute names and `..` end the unpacking (`unsafe_path`). Left out and reported: links that could lead outside,
    special files, entries the disk refuses. Permission bits and file times are kept, set-id bits are not.

    Used from several threads one after another; `abort` may come at any time. What was made before a failure stays.

    Args:
        root: An existing folder; links in its own path are followed.
        own: Given each new descriptor, to set its owner; given an absolute path for links.
        note: Given the absolute path of each temporary file before it exists; `forget` when it is gone.
        max_bytes: Most content in all, and most entries as if each were a block (10,000 are always fine); `too_large`
            beyond.
    """

    def __init__(
        self,
        root: str,
        *,
        own: Callable[[int | str], None] = _nothing,
        note: Callable[[str], None] = _nothing,
        forget: Callable[[str], None] = _nothing,
        max_bytes: int | None = None,
    ) -> None:
        self._root = root
        self._own = own
        self._note = note
        self._forget = forget
        self._bytes_allowed = max_bytes
        self._entries_allowed = None if max_bytes is None else max(_ENTRIES_ALWAYS, max_bytes // BLOCK_BYTES)
        self._lock = threading.Lock()
        self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent: tuple[tuple[str, ...], int] = ((), self._root_fd)
        self._head = bytearray()
        self._left = 0
        self._padding = 0
        self._record: bytearray | None = None
        self._record_type = b""
        self._records: dict[str, str] = {}
        self._member = tarfile.TarInfo()
        self._mtime_ns = 0
        self._fd = -1
        self._temp = ""
        self._is_at_end = False
        self._is_closed = False
        self._entries = self._files = self._folders = self._links = self._size_bytes = 0
        self._problems: list[Problem] = []
        self._problem_count = 0
        self._locked_folders: list[tuple[tuple[str, ...], int]] = []

    def write(self, chunks: Iterable[bytes]) -> None:
        """Take the next bytes of the stream.

        Raises:
            TreeError: The archive is hostile or broken, or the disk is full; the caller still has to `abort`.
        """
        with self._lock:
            if self._is_closed:
                raise TreeError("aborted", "the unpacking was aborted")
            try:
                for chunk in chunks:
                    self._feed(memoryview(chunk))
            except OSError as exc:
                raise TreeError(code_of(exc), f"{shown(self._root)}: {os.strerror(exc.errno or 0)}") from exc

    def commit(self) -> TreeReport:
        """End the stream and say what was made.

        Raises:
            TreeError: The stream was cut.
        """
        with self._lock:
            if self._is_closed:
                raise TreeError("aborted", "the unpacking was aborted")
            if not self._is_at_end:
                raise TreeError("bad_archive", "the archive was cut off before its end")
            for parts, mode in reversed(self._locked_folders):
                with contextlib.suppress(OSError):
                    fd = self._open_folder(parts, can_make=False)
                    os.fchmod(fd, mode)
            self._close()
        return TreeReport(
            self._files, self._folders, self._links, self._size_bytes, tuple(self._problems), self._problem_count
        )

    def abort(self) -> None:
        """Close everything and drop the file being written. Safe to repeat, and after `commit`."""
        with self._lock:
            if not self._is_closed:
                self._drop_file()
                self._close()

    def _close(self) -> None:
        self._is_closed = True
        self._leave_parent()
        os.close(self._root_fd)

    def _feed(self, view: memoryview) -> None:
        while view and not self._is_at_end:
            if self._left:
                taken = view[: self._left]
                self._left -= len(taken)
                self._on_content(taken)
                if not self._left:
                    self._on_content_end()
            elif self._padding:
                taken = view[: self._padding]
                self._padding -= len(taken)
            else:
                taken = view[: BLOCK_BYTES - len(self._head)]
                self._head += taken
                if len(self._head) == BLOCK_BYTES:
                    block = bytes(self._head)
                    self._head.clear()
                    self._on_head(block)
            view = view[len(taken) :]

    def _on_head(self, block: bytes) -> None:
        member = parse_head(block)
        if member is None:
            self._is_at_end = True
            return
        is_record = member.type in _RECORD_TYPES
        if is_record:
            if member.size > _MAX_RECORD_BYTES:
                raise TreeError("bad_archive", "a header record is larger than 1 MiB")
            self._record, self._record_type = bytearray(), member.type
        else:
            self._begin(member)
        # As tar does: the size of links and folders says nothing, that of unknown types is content to skip.
        has_content = is_record or member.isreg() or member.type not in tarfile.SUPPORTED_TYPES
        self._left = member.size if has_content else 0
        self._padding = -self._left % BLOCK_BYTES
        if not self._left:
            self._on_content_end()

    def _on_content(self, taken: memoryview) -> None:
        if self._record is not None:
            self._record += taken
            return
        if self._fd < 0:
            return
        self._size_bytes += len(taken)
        if self._bytes_allowed is not None and self._size_bytes > self._bytes_allowed:
            raise TreeError("too_large", f"the archive holds more than {self._bytes_allowed} bytes")
        while taken:
            taken = taken[os.write(self._fd, taken) :]

    def _on_content_end(self) -> None:
        if self._record is not None:
            record, self._record = bytes(self._record), None
            self._on_record(record)
        elif self._fd >= 0:
            self._try(self._member.name, self._finish_file)
            self._drop_file()

    def _on_record(self, record: bytes) -> None:
        if self._record_type == _GNU_LONG_NAME:
            self._records["path"] = os.fsdecode(record.rstrip(b"\0"))
        elif self._record_type == _GNU_LONG_LINK:
            self._records["linkpath"] = os.fsdecode(record.rstrip(b"\0"))
        elif self._record_type == tarfile.XGLTYPE:
            if text := pax_pairs(record).get(LEFT_OUT_KEY):
                self._note_left_out(text)
        else:
            self._records.update(pax_pairs(record))

    def _note_left_out(self, text: str) -> None:
        """What the packer had to leave out; a stranger's archive may hold anything there."""
        try:
            said: Any = json.loads(text)
            named, count = [(str(path), str(code)) for path, code in said["named"]], int(said["count"])
        except (ValueError, TypeError, KeyError, RecursionError) as exc:
            raise TreeError("bad_archive", "the list of what was left out is damaged") from exc
        for path, code in named:
            self._add_problem(path, code)
        self._problem_count += max(0, count - len(named))

    def _begin(self, member: tarfile.TarInfo) -> None:
        records, self._records = self._records, {}
        self._mtime_ns = apply_records(member, records)
        self._member = member
        self._entries += 1
        if self._entries_allowed is not None and self._entries > self._entries_allowed:
            raise TreeError("too_large", f"the archive holds more than {self._entries_allowed} entries")
        parts = safe_parts(member.name)
        if member.isdir() or not parts:
            self._try(member.name, lambda: self._make_folder(parts))
        elif member.isreg():
            self._try(member.name, lambda: self._start_file(parts))
        elif member.issym():
            self._try(member.name, lambda: self._make_link(parts))
        elif member.islnk():
            self._try(member.name, lambda: self._make_hard_link(parts))
        else:
            self._add_problem(member.name, "special_file")

    def _try(self, name: str, step: Callable[[], None]) -> None:
        """Run one entry's step; what the disk refuses there is a problem, unless it would refuse the rest as well."""
        try:
            step()
        except OSError as exc:
            self._drop_file()
            if exc.errno in _FATAL:
                raise
            self._add_problem(name, code_of(exc))

    def _add_problem(self, path: str, code: str) -> None:
        self._problem_count += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(path, code))

    def _make_folder(self, parts: tuple[str, ...]) -> None:
        fd = self._open_folder(parts, can_make=True)
        if not parts:
            return
        mode = self._member.mode & 0o777
        os.fchmod(fd, mode | stat.S_IRWXU)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            self._locked_folders.append((parts, mode))
        self._folders += 1

    def _start_file(self, parts: tuple[str, ...]) -> None:
        parent = self._open_folder(parts[:-1], can_make=True)
        self._temp = self._new_temp(parts[:-1])
        self._fd = os.open(os.path.basename(self._temp), _CREATE_FLAGS, 0o600, dir_fd=parent)

    def _finish_file(self) -> None:
        self._own(self._fd)
        os.fchmod(self._fd, self._member.mode & 0o777)
        os.utime(self._fd, ns=(self._mtime_ns, self._mtime_ns))
        self._give_name(safe_parts(self._member.name)[-1])
        self._forget(self._temp)
        self._temp = ""
        self._files += 1

    def _make_link(self, parts: tuple[str, ...]) -> None:
        if not stays_inside(self._member.linkname, depth=len(parts) - 1):
            self._add_problem(self._member.name, "unsafe_link")
            return
        parent = self._open_folder(parts[:-1], can_make=True)
        self._temp = self._new_temp(parts[:-1])
        os.symlink(self._member.linkname, os.path.basename(self._temp), dir_fd=parent)
        try:
            self._own(self._temp)
            self._give_name(parts[-1])
            self._links += 1
        finally:
            self._drop_file()

    def _make_hard_link(self, parts: tuple[str, ...]) -> None:
        source = safe_parts(self._member.linkname)
        if not source:
            self._add_problem(self._member.name, "unsafe_link")
            return
        source_fd = os.dup(self._open_folder(source[:-1], can_make=False))
        try:
            if not stat.S_ISREG(os.stat(source[-1], dir_fd=source_fd, follow_symlinks=False).st_mode):
                self._add_problem(self._member.name, "unsafe_link")
                return
            parent = self._open_folder(parts[:-1], can_make=True)
            self._temp = self._new_temp(parts[:-1])
            name = os.path.basename(self._temp)
            os.link(source[-1], name, src_dir_fd=source_fd, dst_dir_fd=parent, follow_symlinks=False)
            self._give_name(parts[-1])
            self._files += 1
        finally:
            os.close(source_fd)
            self._drop_file()

    def _new_temp(self, folder: tuple[str, ...]) -> str:
        temp = os.path.join(self._root, *folder, TEMP_PREFIX + secrets.token_hex(8))
        self._note(temp)
        return temp

    def _give_name(self, name: str) -> None:
        parent = self._parent[1]
        os.rename(os.path.basename(self._temp), name, src_dir_fd=parent, dst_dir_fd=parent)

    def _drop_file(self) -> None:
        """Forget the temporary file; after a rename nothing is left of it, but for two names of one file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._temp:
            with contextlib.suppress(OSError):
                os.unlink(os.path.basename(self._temp), dir_fd=self._parent[1])
            self._forget(self._temp)
            self._temp = ""

    def _leave_parent(self) -> None:
        if self._parent[1] != self._root_fd:
            os.close(self._parent[1])
        self._parent = ((), self._root_fd)

    def _open_folder(self, parts: tuple[str, ...], *, can_make: bool) -> int:
        """A descriptor of a folder below the root, valid until the next call. No link on the way is followed."""
        if self._parent[0] == parts:
            return self._parent[1]
        self._leave_parent()
        fd = os.dup(self._root_fd)
        try:
            for part in parts:
                if can_make:
                    self._ensure_folder(part, fd)
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        if not parts:
            os.close(fd)
            return self._root_fd
        self._parent = (parts, fd)
        return fd

    def _ensure_folder(self, name: str, dir_fd: int) -> None:
        try:
            os.mkdir(name, 0o755, dir_fd=dir_fd)
        except FileExistsError:
            return
        fd = os.open(name, _FOLDER_FLAGS, dir_fd=dir_fd)
        try:
            self._own(fd)
        finally:
            os.close(fd)
