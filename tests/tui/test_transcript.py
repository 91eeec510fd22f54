"""What commands printed: bounded, complete in order, and harmless."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sbxtui.tui.feeding import Keys, last_of
from sbxtui.tui.widgets.transcript import MAX_LINE_CHARS, Kind, Line, Transcript


def lines_of(transcript: Transcript) -> list[Line]:
    found = (transcript.line(seq) for seq in range(transcript.first, transcript.end))
    return [line for line in found if line is not None]


def texts_of(transcript: Transcript) -> list[str]:
    return [line.text for line in lines_of(transcript)]


def test_a_command_its_output_and_its_end_are_one_block() -> None:
    transcript = Transcript()
    transcript.begin("ls -l")
    transcript.feed("out", b"a\nb\n")
    transcript.feed("err", b"oops\n")
    transcript.finish("exit 1", is_failure=True)
    assert lines_of(transcript) == [
        Line(Kind.COMMAND, "$ ls -l"),
        Line(Kind.OUT, "a"),
        Line(Kind.OUT, "b"),
        Line(Kind.ERR, "oops"),
        Line(Kind.FAILED, "exit 1"),
    ]


def test_a_line_without_an_end_is_shown_while_it_grows_and_kept_at_the_end() -> None:
    transcript = Transcript()
    transcript.feed("out", b"50%")
    assert texts_of(transcript) == ["50%"]
    transcript.feed("out", b" done")
    transcript.finish("exit 0", is_failure=False)
    assert texts_of(transcript) == ["50% done", "exit 0"]


def test_a_carriage_return_leaves_what_a_terminal_would_show() -> None:
    transcript = Transcript()
    transcript.feed("out", b"10%\r50%\r100%\r\nnext\r\n")
    assert texts_of(transcript) == ["100%", "next"]


@given(st.lists(st.integers(0, 40), max_size=6))
def test_characters_cut_between_reads_arrive_whole(cuts: list[int]) -> None:
    data = "grüße, 日本 €\nÄ\n".encode()
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    transcript = Transcript()
    for start, end in pairwise(places):
        transcript.feed("out", data[start:end])
    assert texts_of(transcript) == ["grüße, 日本 €", "Ä"]


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_bytes_whatever_leave_a_control_behind(pieces: list[bytes]) -> None:
    transcript = Transcript()
    for piece in pieces:
        transcript.feed("out", piece)
    for text in texts_of(transcript):
        assert all(char.isprintable() or char == " " or ord(char) >= 0xA0 for char in text), ascii(text)
        assert "\x1b" not in text and "\x9b" not in text


def test_an_escape_cut_between_reads_is_harmless_in_both_halves() -> None:
    transcript = Transcript()
    transcript.feed("out", b"a\x1b]52;c;")
    assert texts_of(transcript) == ["a"]
    transcript.feed("out", b"ZXZpbA==\x07b\n")
    assert texts_of(transcript) == ["ab"]


def test_past_the_cap_the_oldest_lines_go_and_are_counted() -> None:
    transcript = Transcript(max_lines=10)
    for number in range(25):
        transcript.feed("out", f"{number}\n".encode())
    assert transcript.dropped == 15
    assert texts_of(transcript) == [str(number) for number in range(15, 25)]
    assert transcript.line(14) is None


def test_one_read_with_more_lines_than_are_kept_keeps_the_newest_and_counts_the_rest() -> None:
    transcript = Transcript(max_lines=10)
    transcript.feed("out", b"old\n")
    transcript.feed("out", b"".join(b"%d\n" % number for number in range(100)))
    assert texts_of(transcript) == [str(number) for number in range(90, 100)]
    assert transcript.dropped == 91
    assert transcript.first == 91
    assert transcript.output_lines == 101


def test_a_huge_line_is_cut_into_pieces_and_nothing_of_it_is_lost() -> None:
    transcript = Transcript()
    for _ in range(10):
        transcript.feed("out", b"x" * 9_000)
    transcript.finish("exit 0", is_failure=False)
    texts = texts_of(transcript)[:-1]
    assert "".join(texts) == "x" * 90_000
    assert max(map(len, texts)) <= MAX_LINE_CHARS


def test_the_size_of_what_is_kept_is_bounded_too() -> None:
    transcript = Transcript(max_chars=1_000)
    for _ in range(100):
        transcript.feed("out", b"y" * 99 + b"\n")
    assert len(lines_of(transcript)) <= 11
    assert transcript.dropped >= 89


def test_of_many_pieces_the_last_that_hold_so_much_are_kept_and_those_before_are_counted() -> None:
    pieces = [("out", b"12345"), ("err", b"678"), ("out", b"9")]
    assert [last_of(pieces, limit) for limit in (1, 2, 4, 5, 99)] == [
        (pieces[2:], 8),
        (pieces[1:], 5),
        (pieces[1:], 5),
        (pieces, 0),
        (pieces, 0),
    ]


def test_a_key_holds_a_flood_back_for_a_moment_and_the_next_ones_do_not_make_it_longer() -> None:
    keys = Keys()
    keys.pressed()
    until = keys.quiet_until
    keys.pressed()
    assert keys.quiet_until == until > 0
