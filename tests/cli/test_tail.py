"""The last lines of a log, in bounded memory."""

from __future__ import annotations

from sbxtui.cli.tail import LastLines
from sbxtui.core.jobs import Channel, JobOutput


def test_lines_without_an_end_are_kept_up_to_a_limit() -> None:
    last = LastLines(10, max_bytes=1000)
    for number in range(100):
        last.add(JobOutput(number * 100, Channel.OUT, b"x" * 100))
    assert [piece.cursor for piece in last.pieces()] == list(range(9_000, 10_000, 100))
