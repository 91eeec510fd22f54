"""What a sync leaves out: the rules of `.gitignore` files, wherever they come from.

Decided from the top down, as git does: the last pattern that fits wins, those of deeper folders before those above,
and below a folder that is left out nothing is asked any more. `.git` is always left out.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sbxguest.tree.glob import BadPatternError, name_regex, path_regex
from sbxguest.tree.quick import Quick

IGNORE_FILES = (b".gitignore", b".sbxignore")
# For each folder of a tree, by its path, an open descriptor and the names in it, where they are known: the texts that
# hold in it, the weakest first.
TextSource = Callable[[bytes, int, Collection[bytes] | None], Sequence[bytes]]

_MAX_RULES = 10_000
_MAX_TEXT_BYTES = 1024 * 1024
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WILD = re.compile(rb"[*?\[\\]")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Rule:
    text: bytes
    pattern: re.Pattern[bytes]
    is_negated: bool
    needs_folder: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that hold in one folder: its own, and those of the folders above.

    Attributes:
        above: Those of the folder above; None at the end.
        folder: Whose they are, relative to the root; empty for the root itself.
        names: The rules that are a plain name. Each rule comes with its line's number: the last that fits wins.
        globs: Those that fit names by wildcards.
        paths: Those that fit paths.
        any_glob: Fits what any of `globs` fits; None if there are none. `any_path` likewise.
        quick: Tells of most names that no rule fits them, here or above; None if some rule fits paths.
    """

    above: Rules | None = None
    folder: bytes = b""
    names: Mapping[bytes, Sequence[tuple[int, _Rule]]] | None = None
    globs: Sequence[tuple[int, _Rule]] = ()
    paths: Sequence[tuple[int, _Rule]] = ()
    any_glob: re.Pattern[bytes] | None = None
    any_path: re.Pattern[bytes] | None = None
    quick: Quick | None = field(default_factory=Quick)

    def inside(self, folder: bytes, texts: Iterable[bytes]) -> Rules:
        """The rules that hold in `folder`, which lies directly below this one or is the root.

        Args:
            folder: Relative to the root, without a slash at its end.
            texts: The ignore files of that folder, the weakest first.
        """
        names: dict[bytes, list[tuple[int, _Rule]]] = {}
        globs: list[tuple[int, _Rule]] = []
        paths: list[tuple[int, _Rule]] = []
        lines = (line for text in texts for line in _lines(text))
        for number, line in enumerate(lines, start=1):
            _add(line, number, names, globs, paths)
        if not (names or globs or paths):
            return self
        # A folder without rules need not be asked for each name.
        above = self if self.names or self.globs or self.paths else self.above
        quick = None
        if self.quick is not None and not paths:
            quick = self.quick.with_rules(names, {rule.text: rule.pattern for _, rule in globs})
        return Rules(above, folder, names, globs, paths, _any_of(globs), _any_of(paths), quick)

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether what stands at `path`, directly in this folder, is left out. A link to a folder is no folder."""
        name = path[path.rfind(b"/") + 1 :]
        if self.quick is not None and not self.quick.may_fit(name):
            return False
        if name.lower() == b".git":
            return True
        rules: Rules | None = self
        while rules is not None:
            last = rules._last_fit(path, name, is_folder)
            if last is not None:
                return not last.is_negated
            rules = rules.above
        return False

    def _last_fit(self, path: bytes, name: bytes, is_folder: bool) -> _Rule | None:
        best, best_number = None, 0
        candidates: Sequence[tuple[int, _Rule]] = self.names.get(name, ()) if self.names else ()
        if self.any_glob is not None and self.any_glob.fullmatch(name):
            candidates = [*candidates, *(one for one in self.globs if one[1].pattern.fullmatch(name))]
        if self.any_path is not None:
            below = path[len(self.folder) + 1 :] if self.folder else path
            if self.any_path.fullmatch(below):
                candidates = [*candidates, *(one for one in self.paths if one[1].pattern.fullmatch(below))]
        for number, rule in candidates:
            if number > best_number and (is_folder or not rule.needs_folder):
                best, best_number = rule, number
        return best


class RuleTable:
    """The rules of a whole tree, from the texts that hold in each of its folders.

    Args:
        texts: By folder, the weakest first.
    """

    def __init__(self, texts: Mapping[bytes, Sequence[bytes]]) -> None:
        self.texts = texts
        self._rules: dict[bytes, Rules | None] = {b"": Rules().inside(b"", texts.get(b"", ()))}

    def read(self, folder: bytes, _fd: int = -1, _names: Collection[bytes] | None = None) -> Sequence[bytes]:
        """The texts that hold in a folder, as the scanner asks for them."""
        return self.texts.get(folder, ())

    def inside(self, folder: bytes) -> Rules | None:
        """The rules in a folder; None if it is left out."""
        missing: list[bytes] = []
        # Not by recursion: a path somebody else names may be thousands of folders deep.
        while folder not in self._rules:
            missing.append(folder)
            folder = folder.rpartition(b"/")[0]
        rules = self._rules[folder]
        if len(self._rules) > _MAX_RULES:
            self._rules = {b"": self._rules[b""]}
        for inner in reversed(missing):
            is_out = rules is None or rules.ignores(inner, is_folder=True)
            rules = None if is_out or rules is None else rules.inside(inner, self.read(inner))
            self._rules[inner] = rules
        return rules


def _add(
    line: bytes,
    number: int,
    names: dict[bytes, list[tuple[int, _Rule]]],
    globs: list[tuple[int, _Rule]],
    paths: list[tuple[int, _Rule]],
) -> None:
    """Sort one line in; what can match nothing is left out."""
    rule = _rule_of(line)
    if rule is None:
        return
    is_name = b"/" not in rule.text
    if is_name and not _WILD.search(rule.text):
        names.setdefault(rule.text, []).append((number, rule))
    elif is_name:
        globs.append((number, rule))
    else:
        paths.append((number, rule))


@lru_cache(maxsize=1_000)
def _rule_of(line: bytes) -> _Rule | None:
    """What a line says; None for nothing. The same lines hold at each look."""
    is_negated = line.startswith(b"!")
    pattern = line[1:] if is_negated else line
    needs_folder = pattern.endswith(b"/")
    pattern = pattern[:-1] if needs_folder else pattern
    if not pattern:
        return None
    try:
        regex = re.compile(path_regex(pattern) if b"/" in pattern else name_regex(pattern))
    except BadPatternError:
        return None
    return _Rule(pattern, regex, is_negated, needs_folder)


def _any_of(rules: Sequence[tuple[int, _Rule]]) -> re.Pattern[bytes] | None:
    """One question for all of them: most paths fit none."""
    if not rules:
        return None
    return re.compile(b"|".join(b"(?:" + rule.pattern.pattern + b")" for _, rule in rules))


def _lines(text: bytes) -> Iterable[bytes]:
    """The patterns of an ignore file, without comments, empty lines and blanks at the end."""
    for line in text.removeprefix(_BOM).split(b"\n"):
        pattern = _without_blanks(line.removesuffix(b"\r").partition(b"\0")[0])
        if pattern and not pattern.startswith(b"#"):
            yield pattern


def _without_blanks(line: bytes) -> bytes:
    """Without the spaces at its end that no backslash keeps."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 and len(kept) < len(line) else kept


def texts_of(folder_fd: int, names: Collection[bytes] | None = None) -> tuple[bytes, ...]:
    """The ignore files of a folder, the weakest first. Links are not followed, as git does.

    Args:
        folder_fd: Of the folder.
        names: What is in it, where that is known: most folders have no such file, and are not asked for one.

    Raises:
        OSError: One is there and cannot be read, or is larger than 1 MiB: nobody knows what it leaves out.
    """
    present = IGNORE_FILES if names is None else [name for name in IGNORE_FILES if name in names]
    return tuple(text for name in present if (text := _text_of(folder_fd, name)))


def _text_of(folder_fd: int, name: bytes) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode):
            return b""
        fd = os.open(name, _READ_FLAGS, dir_fd=folder_fd)
    except FileNotFoundError:
        return b""
    with os.fdopen(fd, "rb", 0) as file:
        text = file.read(_MAX_TEXT_BYTES + 1) or b""
    if len(text) > _MAX_TEXT_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
    return text
