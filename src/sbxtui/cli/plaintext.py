"""What a job wrote to its terminal, as text for ours: its escapes would ask for answers, or leave modes behind."""

from __future__ import annotations

import codecs
import re

from sbxtui.core.text import harmless

# No escape sequence that is worth waiting for is longer.
_LONGEST = 4096
_UNFINISHED = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*\x1b?|\x1b[ -/]*|\r)\Z"
)


class PlainText:
    """Makes a stream harmless piece by piece; an escape sequence or character may lie across several."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def of(self, data: bytes) -> bytes:
        """The text of a piece. The unfinished escape at its end is held back, and a carriage return."""
        text = self._held + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST))
        start = unfinished.start() if unfinished else len(text)
        self._held = text[start:]
        return harmless(text[:start]).encode()

    def rest(self) -> bytes:
        """What was held back."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return harmless(text).encode()
