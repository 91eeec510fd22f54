"""A job's terminal output as plain text, in whatever pieces it comes."""

from __future__ import annotations

import pytest

from sbxtui.cli.plaintext import PlainText

_SAID = "\x1b[?1049h\x1b[31mr\u00e9d\x1b[0m\r\n\x1b]52;c;aGk=\x07\x1b[6n\x1bPq\x1b\\end\r\n".encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_no_escape_passes_however_the_stream_is_cut(size: int) -> None:
    plain = PlainText()
    pieces = [plain.of(_SAID[at : at + size]) for at in range(0, len(_SAID), size)]
    assert b"".join([*pieces, plain.rest()]).decode() == "r\u00e9d\nend\n"
