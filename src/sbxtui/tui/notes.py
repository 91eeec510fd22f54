"""What was said in toasts, kept: bounded, and the same words again are one note with a count. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from datetime import datetime

from sbxtui.core.errors import SbxError
from sbxtui.core.values import dataclass

MAX_NOTES = 200


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that was said; `times` counts how often in a row. `error` has the remedy."""

    at: datetime
    words: str
    severity: str
    times: int = 1
    error: SbxError | None = None


class Notes:
    """The newest notes, oldest first."""

    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=MAX_NOTES)

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, note: Note) -> Note:
        """Keep a note; returns it as it is kept, counted when it repeats the one before."""
        if self._notes and self._notes[-1].words == note.words:
            note = replace(note, times=self._notes.pop().times + 1)
        self._notes.append(note)
        return note

    def text(self) -> str:
        """All of it as a page, newest first."""
        lines = []
        for note in reversed(self._notes):
            times = f"  ({note.times} times)" if note.times > 1 else ""
            mark = {"error": "!", "warning": "?"}.get(note.severity, " ")
            lines.append(f"{note.at.astimezone():%H:%M:%S} {mark} {note.words}{times}")
            if note.error is not None and note.error.hint:
                lines.append(f"{'':<11}hint: {note.error.hint}")
        return "\n".join(lines) or "nothing was said so far"
