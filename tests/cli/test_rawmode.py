"""What a program left behind at a terminal is undone, and no more."""

from __future__ import annotations

import pytest

from sbxtui.cli.rawmode import TerminalModes


@pytest.mark.parametrize(
    ("said", "undone"),
    [
        (b"\x1b[>1u", b"\x1b[<1u"),
        (b"\x1b[>1u\x1b[>9;1u", b"\x1b[<2u"),
        (b"\x1b[>1u\x1b[>1u\x1b[<u", b"\x1b[<1u"),
        (b"\x1b[>4;2m", b"\x1b[>4m"),
        (b"\x1b=", b"\x1b>"),
        (b"\x1b[2;10r", b"\x1b7\x1b[r\x1b8"),
        (b"\x1b(0", b"\x1b(B\x0f"),
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_what_was_changed_is_undone_however_it_was_cut(said: bytes, undone: bytes, size: int) -> None:
    modes = TerminalModes()
    for at in range(0, len(said), size):
        modes.follow(said[at : at + size])
    assert modes.undoing() == undone + b"\x1b[0m"


def test_plain_output_leaves_nothing_to_undo() -> None:
    modes = TerminalModes()
    modes.follow(b"plain \x1b[31mred\x1b[0m\r\n\x1b(B")
    assert modes.undoing() == b""


@pytest.mark.parametrize("size", [1, 100])
def test_keys_that_a_program_gave_back_are_not_given_back_again(size: int) -> None:
    modes = TerminalModes()
    said = b"\x1b[>1u\x1b[>1u\x1b[<2u\x1b[<u"
    for at in range(0, len(said), size):
        modes.follow(said[at : at + size])
    assert modes.undoing() == b""
