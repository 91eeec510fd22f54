"""What stands in a tree: complete, or an error. One scanner for both ends.

No link is followed, no pipe or device opened, and neither depth nor width can exhaust anything: of a branch only the
lowest folders are held open.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from sbxguest.tree.contents import Taker, Unstable, digest_of, read_whole
from sbxguest.tree.entry import MAX_PATH_BYTES, Entry, Note, Record, State, new_digest
from sbxguest.tree.ignore import Rules, TextSource
from sbxguest.tree.report import code_of
from sbxguest.tree.root import FOLDER_FLAGS, OWN_PREFIXES, Root, file_state, is_racy, join, look, split, state_of

_OPEN_LEVELS = 64
_RECORDS_AT_ONCE = 256
# No disk has longer ones.
_MAX_NAME_BYTES = 255
# What `os.fsencode` asks for at each call.
_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def _no_texts(_path: bytes, _fd: int, _names: object) -> tuple[bytes, ...]:
    return ()


def _go_on() -> None:
    return


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How a tree is looked at.

    Attributes:
        has_digests: Read every file whose content is not known.
        is_deep: Look below folders.
        rules: What holds above the root.
        texts: What each folder adds to them.
        known: States of before. Where the stamp is still the same and not racy, the content is taken from there.
        doubted: Paths that are read again even if they changed so recently that this is no proof, either; None for all.
        unmet: A copy of `known`, where files that are as they were need not be listed: what is met is taken out of it.
        check: Called now and then; what it raises ends the scan.
        take: Called with the path and state of each folder and link, and of each file that is read and is no longer
            than 1 MiB, with its content, in the order of the records.
        taker_of: Called with the path of each longer one before it is read; what it gives takes all that is read.
    """

    has_digests: bool = True
    is_deep: bool = True
    rules: Rules = field(default_factory=Rules)
    texts: TextSource = _no_texts
    known: Mapping[bytes, State] = field(default_factory=dict)
    doubted: Collection[bytes] | None = None
    unmet: dict[bytes, State] | None = None
    check: Callable[[], None] = _go_on
    take: Callable[[bytes, State, bytes], None] | None = None
    taker_of: Callable[[bytes, os.stat_result], Taker | None] | None = None


def scan(root: Root, paths: Iterable[bytes] = (b"",), options: ScanOptions | None = None) -> Iterator[Record]:
    """What stands at `paths`, and below them; a folder comes before what is in it. The empty path is the whole tree.

    Where nothing stands, there is no record; the root itself has none. A path below another one of `paths` is left out,
    if the scan is deep. Names of our own temporary files are left out, too.

    Raises:
        TreeError: The root was taken away meanwhile (`root_changed`): what came so far is not what stands there.
    """
    for some in scan_by_lists(root, paths, options or ScanOptions()):
        yield from some


def scan_by_lists(root: Root, paths: Iterable[bytes], options: ScanOptions) -> Iterator[list[Record]]:
    """The same, some records of one folder at a time."""
    walk = _Walk(root, options)
    for path in _topmost(paths) if options.is_deep else sorted(set(paths)):
        yield from walk.at(path)
    root.check()


def _topmost(paths: Iterable[bytes]) -> Iterator[bytes]:
    last: bytes | None = None
    for path in sorted(set(paths), key=lambda path: path.replace(b"/", b"\0")):
        if last is None or not (last == b"" or path.startswith(last + b"/")):
            last = path
            yield path


@dataclass(slots=True)
class _Level:
    """A folder that is being gone through. `fd` is -1 while it is not held open.

    `files` are those of its names that are read at once: its listing calls them files, and no rule leaves them out.
    """

    path: bytes
    fd: int
    inode: int
    names: Iterator[bytes]
    rules: Rules
    files: Collection[bytes] = ()


class _Walk:
    def __init__(self, root: Root, options: ScanOptions) -> None:
        self._root = root
        self._options = options

    def at(self, path: bytes) -> Iterator[list[Record]]:
        """The records of one path."""
        levels: list[_Level] = []
        try:
            yield from self._start(path, levels)
            while levels:
                yield self._some(levels)
        finally:
            for level in levels:
                if level.fd >= 0:
                    os.close(level.fd)

    def _some(self, levels: list[_Level]) -> list[Record]:
        """What is next in the lowest folder: all of it, or up to a folder that is entered, or enough for once."""
        level = levels[-1]
        above, unmet, rules, files = join(level.path, b""), self._options.unmet, level.rules, level.files
        known_at = self._options.known.get
        may_fit = _may_always if rules.quick is None else rules.quick.may_fit
        records: list[Record] = []
        for name in level.names:
            path = above + name
            if name in files:
                try:
                    record: Record = self._read(name, path, level.fd)
                except (OSError, Unstable):
                    # Reading it would have told all that a look tells; now that says why not.
                    record = self._child(level, name, path, levels)
                records.append(record)
                if len(records) >= _RECORDS_AT_ONCE:
                    return records
                continue
            known = known_at(path) if unmet is None else unmet.pop(path, None)
            # Most files of a tree are as they were: nothing more is asked of these.
            if (
                known is not None
                and _is_known_file(known, name, level.fd)
                and not (may_fit(name) and rules.ignores(path, is_folder=False))
            ):
                if unmet is None:
                    records.append(Entry(path, known))
            elif not name.startswith(OWN_PREFIXES):
                self._options.check()
                records.append(self._child(level, name, path, levels))
                if levels[-1] is not level:
                    return records
            if len(records) >= _RECORDS_AT_ONCE:
                return records
        _leave(levels)
        return records

    def _start(self, path: bytes, levels: list[_Level]) -> Iterator[list[Record]]:
        """Enter the root, or what `path` names; levels above it are entered for their rules only."""
        if not path:
            levels.append(self._enter(b"", self._root.open_folder(b""), self._root.inode, self._options.rules))
            return
        if any(name.startswith(OWN_PREFIXES) for name in path.split(b"/")):
            return
        folder, name = split(path)
        rules, fd = self._options.rules, self._root.open_folder(b"")
        try:
            above = b""
            for part in (*folder.split(b"/"), None) if folder else (None,):
                rules = rules.inside(above, self._options.texts(above, fd, None))
                if part is None:
                    break
                above = join(above, part)
                if rules.ignores(above, is_folder=True):
                    yield [Note(above, "ignored")]
                    return
                inner = os.open(part, FOLDER_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = inner
            look(name, fd)
            top = _Level(folder, fd, 0, iter(()), rules)
            yield [self._child(top, name, path, levels)]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as exc:
            yield [Note(path, code_of(exc))]
        finally:
            os.close(fd)

    def _child(self, level: _Level, name: bytes, path: bytes, levels: list[_Level]) -> Record:
        if len(path) > MAX_PATH_BYTES:
            return Note(level.path, "bad_path")
        try:
            if level.fd < 0:
                raise FileNotFoundError
            return self._record(level, name, path, levels)
        except FileNotFoundError:
            return Note(path, "vanished")
        except Unstable:
            return Note(path, "unstable")
        except OSError as exc:
            return Note(path, code_of(exc))

    def _record(self, level: _Level, name: bytes, path: bytes, levels: list[_Level]) -> Record:
        found = look(name, level.fd)
        is_folder = stat.S_ISDIR(found.st_mode)
        if level.rules.ignores(path, is_folder=is_folder):
            return Note(path, "ignored")
        if is_folder and found.st_dev != self._root.device:
            return Note(path, "other_file_system")
        known = self._options.known.get(path)
        is_known = known is not None and (known.is_still(found) or self._can_wait(path, known, found))
        if not is_known and self._options.has_digests and stat.S_ISREG(found.st_mode):
            return self._read(name, path, level.fd)
        state = known if is_known else state_of(found, name, level.fd)
        if state is None:
            return Note(path, "special_file")
        if is_folder and self._options.is_deep:
            fd = os.open(name, FOLDER_FLAGS, dir_fd=level.fd)
            levels.append(self._enter(path, fd, found.st_ino, level.rules))
            if len(levels) > _OPEN_LEVELS:
                _let_go(levels[-_OPEN_LEVELS - 1])
        if self._options.take is not None and not stat.S_ISREG(found.st_mode):
            self._options.take(path, state, b"")
        return Entry(path, state)

    def _read(self, name: bytes, path: bytes, folder_fd: int) -> Entry:
        options = self._options
        at_ns = time.time_ns()
        whole = read_whole(name, folder_fd, options.check)
        if whole is None:
            taker_of = (lambda _: None) if options.taker_of is None else partial(options.taker_of, path)
            digest, found, at_ns = digest_of(name, folder_fd, options.check, taker_of)
            return Entry(path, file_state(found, digest, at_ns))
        content, found = whole
        state = file_state(found, new_digest(content).digest(), at_ns)
        if options.take is not None:
            options.take(path, state, content)
        return Entry(path, state)

    def _can_wait(self, path: bytes, known: State, found: os.stat_result) -> bool:
        """Whether a file seems to be as it was, nobody says that it is not, and reading it now would prove nothing."""
        doubted = self._options.doubted
        is_doubted = doubted is None or path in doubted
        return not is_doubted and is_racy(found) and known.is_still(found, can_be_racy=True)

    def _enter(self, path: bytes, fd: int, inode: int, rules: Rules) -> _Level:
        try:
            files: Iterable[bytes] = ()
            if self._options.has_digests and not self._options.known:
                names, files = _names_and_files(fd)
            else:
                names = sorted([name.encode(_ENCODING, _ERRORS) for name in os.listdir(fd)])
            if texts := self._options.texts(path, fd, names):
                rules = rules.inside(path, texts)
            return _Level(path, fd, inode, iter(names), rules, _plain(path, files, rules) if files else ())
        except BaseException:
            os.close(fd)
            raise


def _names_and_files(fd: int) -> tuple[list[bytes], list[bytes]]:
    """The names in a folder, and those that are of files."""
    names, files = [], []
    with os.scandir(fd) as children:
        for one in children:
            name = one.name.encode(_ENCODING, _ERRORS)
            names.append(name)
            if one.is_file(follow_symlinks=False):
                files.append(name)
    return sorted(names), files


def _plain(folder: bytes, files: Iterable[bytes], rules: Rules) -> set[bytes]:
    """Those of the files of a folder of which nothing has to be asked before they are read."""
    if rules.quick is None or len(folder) + _MAX_NAME_BYTES >= MAX_PATH_BYTES:
        return set()
    may_fit = rules.quick.may_fit
    return {name for name in files if not (may_fit(name) or name.startswith(OWN_PREFIXES))}


def _may_always(_name: bytes) -> bool:
    return True


def _is_known_file(known: State, name: bytes, folder_fd: int) -> bool:
    """Whether a file whose content is known is as it was."""
    if known.is_dir:
        return False
    try:
        return known.is_still(os.stat(name, dir_fd=folder_fd, follow_symlinks=False))
    except OSError:
        return False


def _leave(levels: list[_Level]) -> None:
    """Go back to the folder above. One that was moved or removed meanwhile stays closed: its rest has vanished."""
    left = levels.pop()
    if left.fd < 0:
        return
    try:
        if levels and levels[-1].fd < 0:
            levels[-1].fd = _folder_above(left.fd, levels[-1].inode)
    finally:
        os.close(left.fd)


def _folder_above(fd: int, inode: int) -> int:
    try:
        above = os.open("..", FOLDER_FLAGS, dir_fd=fd)
    except OSError:
        return -1
    if os.fstat(above).st_ino == inode:
        return above
    os.close(above)
    return -1


def _let_go(level: _Level) -> None:
    if level.fd >= 0:
        os.close(level.fd)
        level.fd = -1
