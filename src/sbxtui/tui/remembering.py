"""What the dashboard remembers of how a person likes it; `config.toml` is theirs, counts more, and is never written."""

from __future__ import annotations

from pathlib import Path

from sbxtui.core.errors import SbxError
from sbxtui.home import Home
from sbxtui.settings import UI_THEMES
from sbxtui.tui.copying import write_private


def theme_file(home: Home) -> Path:
    """Where the last chosen theme is kept."""
    return home.state_dir / "theme"


def remembered_theme(home: Home) -> str:
    """The theme chosen last, as `[ui]` names it; empty when none was, or what is kept is none. Blocking."""
    try:
        with theme_file(home).open(encoding="utf-8", errors="replace") as file:
            name = file.read(64).strip()
    except OSError:
        return ""
    return name if name in UI_THEMES else ""


def remember_theme(home: Home, name: str) -> None:
    """Keep a choice; blocking.

    Raises:
        SbxError: It cannot be written.
    """
    if name not in UI_THEMES:
        raise SbxError(f"`{name}` is no theme")
    write_private(theme_file(home), name + "\n")
