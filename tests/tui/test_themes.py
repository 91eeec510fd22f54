"""Every theme can be read, and none is needed to understand the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import Theme

from sbxtui.settings import Settings, Ui
from sbxtui.tui.remembering import remember_theme, remembered_theme, theme_file
from sbxtui.tui.themes import MONO_THEME, THEMES, TONES
from tests.support.fake_services import FakeCloud, home_at, sandbox
from tests.tui.driving import dashboard


@pytest.mark.parametrize("theme", [theme for theme in THEMES if not theme.ansi], ids=lambda theme: theme.name)
@pytest.mark.parametrize("ground", ["background", "panel", "cursor"])
def test_every_text_colour_has_enough_contrast(theme: Theme, ground: str) -> None:
    behind = theme.variables["sbx-cursor"] if ground == "cursor" else getattr(theme, ground)
    texts = {tone: theme.variables[f"sbx-{tone}"] for tone in TONES} | {"text": str(theme.foreground)}
    weak = {
        tone: round(ratio, 2)
        for tone, colour in texts.items()
        if (ratio := contrast(Color.parse(colour), Color.parse(behind))) < 4.5
    }
    assert weak == {}


def contrast(one: Color, other: Color) -> float:
    """The WCAG contrast ratio, 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: Color) -> float:
    parts = [part / 255 for part in (colour.r, colour.g, colour.b)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


async def test_no_color_gives_the_mono_theme_with_a_reversed_cursor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")])) as driver:
        assert driver.app.theme == MONO_THEME
        table = driver.main.query_one("#table")
        strip = table.render_line(1)
        assert "api" in strip.text
        assert all(segment.style is not None and segment.style.reverse for segment in strip)


async def test_a_chosen_theme_is_there_again_next_time(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    async with dashboard(tmp_path, FakeCloud()) as driver:
        await driver.press("T")
        await driver.until(lambda: remembered_theme(home) == "light")
    async with dashboard(tmp_path, FakeCloud()) as driver:
        assert driver.app.theme == "sbx-light"
    assert not home.config_file.exists()


async def test_what_the_config_says_counts_more_and_is_said(tmp_path: Path) -> None:
    settings = Settings(home=home_at(tmp_path), ui=Ui(theme="contrast"))
    remember_theme(settings.home, "light")
    async with dashboard(tmp_path, FakeCloud(), settings=settings) as driver:
        assert driver.app.theme == "sbx-contrast"
        await driver.press("T")
        words = "theme terminal, until you leave: config.toml says contrast"
        # A toast may be gone before it is looked for.
        await driver.until(lambda: words in driver.main.notes.text())
    assert remembered_theme(settings.home) == "light"


@pytest.mark.parametrize("kept", [b"", b"no such theme", b"\xff\xfe\x00", b"light" * 1000])
def test_what_is_kept_and_names_no_theme_is_none(kept: bytes, tmp_path: Path) -> None:
    file = theme_file(home_at(tmp_path))
    file.parent.mkdir(parents=True)
    file.write_bytes(kept)
    assert remembered_theme(home_at(tmp_path)) == ""
