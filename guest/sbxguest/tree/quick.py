"""Whether any rule of an ignore file may fit a name at all: most names fit none, and there are as many as files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

# Folders below folders, each with rules of its own, must not make ever longer questions.
_MAX_RULES = 1_000
_WILD = re.compile(rb"[*?\[\\]")
# Left out in any case.
_GIT = frozenset(b"." + bytes(letters) for letters in product(b"gG", b"iI", b"tT"))


@dataclass(frozen=True, slots=True)
class Quick:
    """What all rules that hold in a folder look for, in forms that are asked for at once.

    Attributes:
        names: Plain names.
        ends, starts: What `*end` and `start*` look for.
        others: The other wildcards; None if there are none.
    """

    names: frozenset[bytes] = _GIT
    ends: tuple[bytes, ...] = ()
    starts: tuple[bytes, ...] = ()
    others: re.Pattern[bytes] | None = None

    def may_fit(self, name: bytes) -> bool:
        """Whether some rule may fit a name; if not, none does."""
        return (
            name in self.names
            or name.endswith(self.ends)
            or name.startswith(self.starts)
            or (self.others is not None and self.others.fullmatch(name) is not None)
        )

    def with_rules(self, names: Iterable[bytes], globs: Mapping[bytes, re.Pattern[bytes]]) -> Quick | None:
        """The same with more: plain names, and wildcards by their text; None where that is too much."""
        ends = tuple(text[1:] for text in globs if text.startswith(b"*") and not _WILD.search(text[1:]))
        starts = tuple(text[:-1] for text in globs if text.endswith(b"*") and not _WILD.search(text[:-1]))
        simple = {b"*" + end for end in ends} | {start + b"*" for start in starts}
        others = [regex.pattern for text, regex in globs.items() if text not in simple]
        more = Quick(self.names.union(names), self.ends + ends, self.starts + starts, self._others_with(others))
        return None if max(len(more.names), len(more.ends) + len(more.starts), len(others)) > _MAX_RULES else more

    def _others_with(self, patterns: list[bytes]) -> re.Pattern[bytes] | None:
        known = [] if self.others is None else [self.others.pattern]
        parts = [*known, *(b"(?:" + pattern + b")" for pattern in patterns)]
        return re.compile(b"|".join(parts)) if parts else None
