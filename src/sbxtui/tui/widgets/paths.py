"""Completing paths of this machine while they are typed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from textual.suggester import Suggester

from sbxtui.core.paths import at_home

_MOST_ENTRIES = 5_000


class LocalPaths(Suggester):
    """Suggests the first entry that begins as typed; folders end in a slash."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """The whole path, beginning with what was typed; None when nothing fits."""
        return await asyncio.to_thread(_first_match, value)


def _first_match(value: str) -> str | None:
    folder, _, start = value.rpartition("/")
    if not start:
        return None
    base = at_home(folder + "/") if folder or value.startswith("/") else Path()
    found: list[str] = []
    try:
        with os.scandir(base) as entries:
            for _, entry in zip(range(_MOST_ENTRIES), entries, strict=False):
                if entry.name.startswith(start) and entry.name.isprintable():
                    found.append(entry.name + "/" * entry.is_dir())
    except (OSError, ValueError):
        return None
    return value[: len(value) - len(start)] + min(found) if found else None
