"""What the program that sets gVisor up says is told to people, whatever it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.core.errors import RuntimeUnavailable, TimedOut
from sbxtui.home import Home
from sbxtui.services import localcloud


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "without a word"),
        (b"Traceback \x1b[31m", "Traceback"),
        (b"[1]", r"\[1\]"),
        (b"\xff\xfe", "gVisor was not set up"),
        (b"{}", "it named no program"),
        (b'{"error": "no network", "hint": "plug it in"}', "no network"),
        (b"[" * 60_000, "gVisor was not set up"),
    ],
)
def test_an_answer_that_is_none_is_a_plain_error(said: bytes, words: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=words):
        localcloud.answer_of(said)


def test_an_answer_is_handed_on() -> None:
    assert localcloud.answer_of(b'{"path": "/x", "version": 1}') == {"path": "/x", "version": "1"}


async def test_a_set_up_that_takes_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localcloud, "_SET_UP_DEADLINE_S", 0.0)
    with pytest.raises(TimedOut, match="gVisor was not set up"):
        await localcloud.set_up(
            Home(tmp_path, tmp_path / "state", tmp_path, tmp_path), tmp_path / "none", lambda _: None
        )


async def test_a_program_that_is_none_is_refused(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(RuntimeUnavailable, match="is no program"):
        await localcloud.set_up(Home(tmp_path, tmp_path / "state", tmp_path, tmp_path), tmp_path / "none", told.append)
