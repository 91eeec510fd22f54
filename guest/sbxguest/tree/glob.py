"""One pattern of an ignore file as a regular expression over bytes, exactly as git reads it.

A cloned repository is not trusted: whatever its patterns hold, matching takes time that grows gently with the path.
So a wildcard gives back nothing once what follows it has matched (atomic groups); only the last one of a run may.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_SPECIAL = re.compile(rb"[*?\[\\]")
_ONE = b"[^/]"
_SOME = b"[^/]*"
_DEEP = b"(?:[^/]*/)*"
# What the C library calls these in the C locale.
_CLASSES: dict[bytes, Callable[[int], bool]] = {
    b"alnum": lambda c: chr(c).isalnum(),
    b"alpha": lambda c: chr(c).isalpha(),
    b"blank": lambda c: c in b" \t",
    b"cntrl": lambda c: c < 32 or c == 127,
    b"digit": lambda c: chr(c).isdigit(),
    b"graph": lambda c: 32 < c < 127,
    b"lower": lambda c: chr(c).islower(),
    b"print": lambda c: 32 <= c < 127,
    b"punct": lambda c: 32 < c < 127 and not chr(c).isalnum(),
    b"space": lambda c: c in b" \t\n\r\v\f",
    b"upper": lambda c: chr(c).isupper(),
    b"xdigit": lambda c: c in b"0123456789abcdefABCDEF",
}


class BadPatternError(ValueError):
    """The pattern can match nothing: a bracket or a backslash that is not finished."""


def path_regex(pattern: bytes) -> bytes:
    """For a pattern with a `/`: matches whole paths below its folder.

    Raises:
        BadPatternError: It matches nothing.
    """
    if pattern.startswith(b"/"):
        pattern = pattern[1:]
    special = _SPECIAL.search(pattern)
    at = special.start() if special else len(pattern)
    # git compares what stands before the first wildcard by itself, so that a `**` right behind it counts as leading.
    return re.escape(pattern[:at]) + _joined(_tokens(pattern[at:], has_slashes=True))


def name_regex(pattern: bytes) -> bytes:
    """For a pattern without `/`: matches whole names.

    Raises:
        BadPatternError: It matches nothing.
    """
    return _joined(_tokens(pattern, has_slashes=False))


def _joined(tokens: Iterator[bytes]) -> bytes:
    """Put wildcards and what follows them together; every run but the last of its kind is atomic."""
    deep_runs: list[list[bytes]] = [[]]
    for token in tokens:
        if token == _DEEP:
            deep_runs.append([])
        deep_runs[-1].append(token)
    parts = [_run(run) for run in deep_runs]
    return b"".join(
        [parts[0], *(b"(?>" + part + b")" for part in parts[1:-1]), *(parts[-1:] if len(parts) > 1 else [])]
    )


def _run(tokens: list[bytes]) -> bytes:
    """Tokens between two `**`: stars of one name are atomic but for the last."""
    pieces: list[list[bytes]] = [[]]
    for token in tokens:
        if token == _SOME:
            pieces.append([])
        pieces[-1].append(token)
    joined = []
    for number, piece in enumerate(pieces):
        lazy = [_lazy(token) for token in piece]
        has_next_star = number + 1 < len(pieces)
        is_star_within_name = number > 0 and has_next_star and b"/" not in piece
        joined.append(b"(?>" + b"".join(lazy) + b")" if is_star_within_name else b"".join(lazy))
    return b"".join(joined)


def _lazy(token: bytes) -> bytes:
    return token + b"?" if token in (_SOME, _DEEP) else token


def _tokens(pattern: bytes, *, has_slashes: bool) -> Iterator[bytes]:
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"*":
            token, at = _star(pattern, at, has_slashes)
        elif char == b"[":
            token, at = _bracket(pattern, at)
        elif char == b"?":
            token, at = _ONE, at + 1
        else:
            at += char == b"\\"
            if at == len(pattern):
                raise BadPatternError(pattern)
            token, at = re.escape(pattern[at : at + 1]), at + 1
        yield token


def _star(pattern: bytes, at: int, has_slashes: bool) -> tuple[bytes, int]:
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    rest = pattern[end:]
    is_bounded = (at == 0 or pattern[at - 1 : at] == b"/") and (not rest or rest.startswith((b"/", b"\\/")))
    if not has_slashes or end - at == 1 or not is_bounded:
        return _SOME, end
    if not rest:
        return b"(?s:.*)", end
    # Behind `**`, a plain slash may stand for no folder at all, an escaped one may not.
    return (_DEEP, end + 1) if rest.startswith(b"/") else (_DEEP + b"?" + _SOME + b"?", end)


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """A `[…]`: which bytes it takes, and where it ends. Reads ranges and `[:name:]` in git's order."""
    at += 1
    is_negated = pattern[at : at + 1] in (b"!", b"^")
    at += is_negated
    chosen: set[int] = set()
    before = -1
    is_first = True
    while is_first or pattern[at : at + 1] != b"]":
        is_first = False
        added, before, at = _bracket_item(pattern, at, before)
        chosen |= added
    taken = (set(range(256)) - chosen if is_negated else chosen) - {ord("/")}
    if not taken:
        raise BadPatternError(pattern)
    return b"[" + b"".join(b"\\x%02x" % one for one in sorted(taken)) + b"]", at + 1


def _bracket_item(pattern: bytes, at: int, before: int) -> tuple[set[int], int, int]:
    """One item: the bytes it stands for, what a range after it would begin with (-1: none), where the next begins."""
    char = _byte(pattern, at)
    if char == ord("\\"):
        char = _byte(pattern, at + 1)
        return {char}, char, at + 2
    if char == ord("-") and before >= 0 and pattern[at + 1 : at + 2] not in (b"", b"]"):
        at += 1 + (pattern[at + 1 : at + 2] == b"\\")
        return set(range(before, _byte(pattern, at) + 1)), -1, at + 1
    if pattern[at : at + 2] == b"[:":
        end = pattern.find(b"]", at + 2)
        if end < 0:
            raise BadPatternError(pattern)
        if end - at >= 3 and pattern[end - 1 : end] == b":":
            return _class(pattern[at + 2 : end - 1]), -1, end + 1
    return {char}, char, at + 1


def _class(name: bytes) -> set[int]:
    if name not in _CLASSES:
        raise BadPatternError(name)
    return {char for char in range(128) if _CLASSES[name](char)}


def _byte(pattern: bytes, at: int) -> int:
    if at >= len(pattern):
        raise BadPatternError(pattern)
    return pattern[at]
