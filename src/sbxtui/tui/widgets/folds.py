"""Which line of a transcript stands in which row of the screen when some of its blocks are folded. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from sbxtui.tui.widgets.transcript import Block, Transcript


@dataclass(frozen=True, slots=True)
class _Span:
    """Rows from `row` on show lines from `seq` on; `block` is None for the rest of one whose command was dropped."""

    row: int
    seq: int
    count: int
    block: Block | None


class Folds:
    """Rows of a transcript as it was when this was made."""

    def __init__(self, transcript: Transcript) -> None:
        self._spans: list[_Span] = []
        self._end = transcript.end
        row, at = 0, transcript.first
        for block in (*transcript.blocks, None):
            start = block.start if block is not None else transcript.end
            if at < start:
                self._spans.append(_Span(row, at, start - at, None))
                row, at = row + start - at, start
            if block is not None:
                end = transcript.end if block.end is None else block.end
                count = 1 if block.is_folded else end - block.start
                self._spans.append(_Span(row, block.start, count, block))
                row, at = row + count, end
        self.rows = row

    def seq_at(self, row: int) -> int:
        """The line in a row; one past the last for rows below all."""
        span = self._at_row(row)
        return self._end if span is None or row >= self.rows else span.seq + row - span.row

    def row_of(self, seq: int) -> int:
        """The row of a line; of its command when it is folded away."""
        at = bisect_right(self._spans, seq, key=lambda span: span.seq) - 1
        if at < 0:
            return 0
        span = self._spans[at]
        return span.row + min(seq - span.seq, span.count - 1) if seq < self._end else self.rows

    def block_at(self, row: int) -> Block | None:
        """The block a row belongs to."""
        span = self._at_row(row)
        return span.block if span is not None else None

    def _at_row(self, row: int) -> _Span | None:
        at = bisect_right(self._spans, row, key=lambda span: span.row) - 1
        return self._spans[at] if at >= 0 else None
