"""Terminals without line-drawing characters."""

from __future__ import annotations

from pathlib import Path

from rich.cells import cell_len

from sbxtui.tui.glyphs import ASCII, is_plain, plain
from tests.support.fake_services import FakeCloud, sandbox
from tests.tui.driving import dashboard


async def test_everything_the_dashboard_draws_by_itself_has_a_plain_sign_of_the_same_width(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api"), sandbox("web")]), size=(160, 40)) as driver:
        for keys in ((), ("space",), ("question_mark",), ("escape", "n"), ("escape", "e"), ("escape", "y")):
            await driver.press(*keys)
            await driver.pilot.pause()
            assert {sign for sign in driver.text() if not sign.isascii()} <= {chr(sign) for sign in ASCII}
            assert len(plain(driver.text(), "ascii")) == len(driver.text())


def test_every_sign_is_one_cell_and_becomes_one_ascii_character() -> None:
    for sign, stands_for in ASCII.items():
        assert cell_len(chr(sign)) == 1 and isinstance(stands_for, str)
        assert len(stands_for) == 1 and stands_for.isascii()


def test_the_encoding_decides_unless_a_person_does() -> None:
    assert is_plain("", "ANSI_X3.4-1968") and is_plain("", "latin-1") and is_plain("ascii", "utf-8")
    assert not is_plain("", "UTF-8") and not is_plain("unicode", "ascii")
