"""Paths of this machine as people write them."""

from __future__ import annotations

from pathlib import Path


def at_home(text: str | Path) -> Path:
    """A path with `~` as the person's home; one of nobody whose home is known stays as it was written."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def is_folder(path: Path) -> bool:
    """Whether a folder is there; what may not be looked at, or can be no path, is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
