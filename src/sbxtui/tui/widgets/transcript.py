"""What was run in one sandbox and what it printed: bounded, and harmless at the only door out."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from itertools import repeat

from sbxtui.core.text import harmless, harmless_line
from sbxtui.core.values import dataclass

MAX_LINES = 10_000
MAX_CHARS = 8 * 1024 * 1024
# A line without an end is cut into pieces of this size, so that it neither grows without bound nor is lost.
MAX_LINE_CHARS = 16 * 1024
_TAB_CELLS = 8


class Kind(StrEnum):
    """What a line is; it decides the line's look, never its text."""

    COMMAND = "command"
    OUT = "out"
    ERR = "err"
    NOTE = "note"
    END = "end"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it may be shown: no escapes, no controls, tabs widened."""

    kind: Kind
    text: str


@dataclass(slots=True)
class Block:
    """One command with what it printed: the lines from `start` to before `end`; None while it runs.

    `words` say how it ended.
    """

    start: int
    end: int | None = None
    words: str = ""
    is_failure: bool = False
    is_folded: bool = False


class Transcript:
    """Lines by sequence number: number `first` is the oldest kept, `end` the next to come.

    Text is kept as decoded and made harmless when a line is read, so that a flood costs no more than its decoding.
    """

    def __init__(self, *, max_lines: int = MAX_LINES, max_chars: int = MAX_CHARS) -> None:
        # Plain values: a hundred thousand objects that may hold others would each be looked at whenever rubbish is
        # collected, which keys would wait for.
        self._lines: deque[tuple[str, str]] = deque()
        self._max_lines = max_lines
        self._max_chars = max_chars
        self._chars = 0
        self._decoders: dict[Kind, codecs.IncrementalDecoder] = {}
        self._partial: dict[Kind, str] = {}
        self.first = 0
        self.dropped = 0
        self.is_running = False
        self.output_lines = 0
        self.blocks: list[Block] = []

    @property
    def end(self) -> int:
        """One past the last line; a line still being written counts."""
        return self.first + len(self._lines) + sum(1 for text in self._partial.values() if text)

    def line(self, seq: int) -> Line | None:
        """The line of a sequence number; None when it was dropped or is yet to come."""
        at = seq - self.first
        if at < 0:
            return None
        if at < len(self._lines):
            word, text = self._lines[at]
            return Line(Kind(word), _shown(text))
        partial = [(kind, text) for kind, text in self._partial.items() if text]
        at -= len(self._lines)
        return Line(partial[at][0], _shown(partial[at][1])) if at < len(partial) else None

    def begin(self, command: str, *, prompt: str = "$ ") -> None:
        """Start a block: the command line that is run now, behind its prompt."""
        self.is_running = True
        self.output_lines = 0
        self._decoders.clear()
        self.blocks.append(Block(self.end))
        self._append([(Kind.COMMAND, f"{harmless_line(prompt)} {harmless_line(command, limit=2_000)}")])

    def feed(self, channel: str, data: bytes) -> None:
        """Add bytes of `out` or `err` as they come; they may be cut anywhere."""
        kind = Kind.ERR if channel == "err" else Kind.OUT
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = codecs.getincrementaldecoder("utf-8")("replace")
        pieces = (self._partial.get(kind, "") + decoder.decode(data)).split("\n")
        rest = pieces.pop()
        if len(rest) > MAX_LINE_CHARS:
            cut = len(rest) - len(rest) % MAX_LINE_CHARS
            pieces.append(rest[:cut])
            rest = rest[cut:]
        self._partial[kind] = rest
        if pieces:
            pieces = _cut(pieces)
            self.output_lines += len(pieces)
            self._append(list(zip(repeat(kind), self._newest(pieces), strict=False)))

    def add(self, lines: Iterable[tuple[Kind, str]]) -> None:
        """Add whole lines of any kind."""
        self._append(list(lines))

    def note(self, words: str) -> None:
        """Say something of our own between the lines of the block."""
        self._append([(Kind.NOTE, harmless_line(words, limit=2_000))])

    @property
    def lines_with_rest(self) -> int:
        """How many lines the block has printed; one without its end counts."""
        return self.output_lines + sum(1 for text in self._partial.values() if text)

    def finish(self, words: str, *, is_failure: bool) -> None:
        """End the block with what became of it."""
        for kind, text in list(self._partial.items()):
            if text:
                self.output_lines += 1
                self._append([(kind, text)])
        self._partial.clear()
        self.is_running = False
        words = harmless_line(words, limit=2_000)
        self._append([(Kind.FAILED if is_failure else Kind.END, words)])
        if self.blocks and self.blocks[-1].end is None:
            block = self.blocks[-1]
            block.end, block.words, block.is_failure = self.end, words, is_failure

    def text_of(self, block: Block) -> str:
        """What a command printed, as lines, without the command and its end; what was dropped is not in it."""
        end = self.end if block.end is None else block.end - 1
        lines = (self.line(seq) for seq in range(max(block.start + 1, self.first), end))
        return "\n".join(line.text for line in lines if line is not None)

    def _newest(self, pieces: list[str]) -> list[str]:
        """What of `pieces` can be kept; the rest, and everything before it, is dropped without being looked at."""
        excess = len(pieces) - self._max_lines
        if excess <= 0:
            return pieces
        lost = len(self._lines) + excess
        self._lines.clear()
        self._chars = 0
        self._lose(lost)
        return pieces[excess:]

    def _lose(self, lines: int) -> None:
        self.first += lines
        self.dropped += lines
        while self.blocks and self.blocks[0].start < self.first:
            self.blocks.pop(0)

    def _append(self, lines: list[tuple[Kind, str]]) -> None:
        self._lines.extend((kind.value, text) for kind, text in lines)
        self._chars += sum(len(text) for _, text in lines)
        while len(self._lines) > self._max_lines or (self._chars > self._max_chars and len(self._lines) > 1):
            _, text = self._lines.popleft()
            self._chars -= len(text)
            self._lose(1)


def _cut(pieces: list[str]) -> list[str]:
    if max(map(len, pieces)) <= MAX_LINE_CHARS:
        return pieces
    return [piece[at : at + MAX_LINE_CHARS] for piece in pieces for at in range(0, max(1, len(piece)), MAX_LINE_CHARS)]


def _shown(text: str) -> str:
    """As a terminal would leave the line: what a carriage return wrote over is gone, the rest is harmless."""
    return harmless(text.rstrip("\r").rpartition("\r")[2]).replace("\n", " ").expandtabs(_TAB_CELLS)
