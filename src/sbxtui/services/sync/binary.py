"""Contents that are no text, as patches for `git apply` carry them."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator

# git's own: 52 bytes a line, and before them a letter for how many they are.
_LINE_BYTES = 52
_LENGTHS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NOTHING = "0" * 40


def binary_lines(old: bytes | None, new: bytes | None, mode: str) -> Iterator[str]:
    """The part of a patch that turns one content into the other, and back; None is no file.

    Args:
        old: What is there.
        new: What shall be.
        mode: Of both, as git says it; empty where another line tells it.
    """
    yield f"index {_blob_id(old)}..{_blob_id(new)}{f' {mode}' if mode else ''}"
    yield "GIT binary patch"
    for content in (new or b"", old or b""):
        yield f"literal {len(content)}"
        packed = zlib.compress(content)
        for start in range(0, len(packed), _LINE_BYTES):
            line = packed[start : start + _LINE_BYTES]
            yield _LENGTHS[len(line) - 1] + base64.b85encode(line, pad=True).decode()
        yield ""


def _blob_id(content: bytes | None) -> str:
    if content is None:
        return _NOTHING
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
