"""Lines that were run in one sandbox, kept from one dashboard to the next; and walking through them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from sbxtui.core.errors import SbxError
from sbxtui.home import Home, private_dir

MAX_LINES = 1_000
_MAX_FILE_BYTES = 4 << 20
_ODD = re.compile(r"[^A-Za-z0-9._-]")


class LineHistory:
    """Lines, oldest first, and a place among them. With a part typed, walking stops only at lines that have it."""

    def __init__(self, lines: list[str] | None = None) -> None:
        self.lines = lines or []
        self._at = len(self.lines)
        self._sought = ""
        self._shown = ""

    def remember(self, line: str) -> bool:
        """Keep a line that was run; False if it is the last one again."""
        is_new = line not in self.lines[-1:]
        if is_new:
            self.lines = [*self.lines, line][-MAX_LINES:]
        self.rest()
        return is_new

    def add_before(self, lines: list[str]) -> None:
        """These came earlier."""
        self.lines = [*lines, *self.lines][-MAX_LINES:]
        self.rest()

    def rest(self) -> None:
        """Be behind the last line again."""
        self._at, self._sought, self._shown = len(self.lines), "", ""

    def step(self, by: int, *, typed: str) -> str:
        """The next line in the direction of `by` with what was typed before walking began; at the end, just that."""
        if typed != self._shown:
            self._at, self._sought = len(self.lines), typed
        at = self._at + by
        while 0 <= at < len(self.lines) and (self._sought not in self.lines[at] or self.lines[at] == typed):
            at += by
        if at >= 0:
            self._at = min(at, len(self.lines))
            self._shown = self.lines[self._at] if self._at < len(self.lines) else self._sought
        else:
            self._shown = typed
        return self._shown


def history_file(home: Home, sandbox_id: str) -> Path:
    """Where a sandbox's lines are kept: one JSON string a line."""
    return home.state_dir / "history" / f"{_ODD.sub('_', sandbox_id)[:120]}.jsonl"


def load(file: Path) -> list[str]:
    """The lines kept in a file, oldest first; what cannot be read is none."""
    try:
        kept = file.read_bytes()[-_MAX_FILE_BYTES:].splitlines()[-MAX_LINES:]
    except OSError:
        return []
    found = (_line_of(one) for one in kept)
    return [line for line in found if line]


def keep(file: Path, line: str) -> None:
    """Append a line, readable by this user alone; a disk that takes none loses the line and nothing else."""
    data = json.dumps(line).encode() + b"\n"
    try:
        private_dir(file.parent)
        if file.exists() and file.stat().st_size > _MAX_FILE_BYTES:
            file.unlink()
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)
    except (OSError, SbxError):
        return


def _line_of(kept: bytes) -> str:
    try:
        line = json.loads(kept)
    except ValueError:
        return ""
    return line if isinstance(line, str) else ""
