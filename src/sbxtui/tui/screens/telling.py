"""What the main screen says and hands out: toasts with their history, pages, copies, the whole terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from textual.app import SuspendNotSupported

from sbxtui.core.errors import SbxError
from sbxtui.core.text import harmless, harmless_line
from sbxtui.settings import Settings
from sbxtui.tui import clock
from sbxtui.tui.copying import copied_words, fits_sequence, keep_copy
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.lending import lend_terminal, same_flags
from sbxtui.tui.notes import Note, Notes
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.operations import Operations
from sbxtui.tui.remembering import remember_theme
from sbxtui.tui.working import worker


class Telling(Operations):
    """Says things, keeps what was said, and copies."""

    def __init__(self, first_look: FirstLook) -> None:
        super().__init__(first_look)
        self.fleet = Fleet()
        self.notes = Notes()
        self.last_error: tuple[datetime, str, SbxError] | None = None

    @property
    def settings(self) -> Settings:
        """The settings the dashboard runs with."""
        return cast(Settings, self.app.settings)  # type: ignore[attr-defined]  # the dashboard has them

    def tell(self, words: str, severity: str = "information", error: SbxError | None = None) -> None:
        """A toast that is also kept; its words are never markup."""
        note = self.notes.add(Note(clock.now(), harmless_line(words), severity, error=error))
        shown = note.words if note.times == 1 else f"{note.words} ({note.times} times)"
        match severity:
            case "error":
                self.notify(shown, severity="error", markup=False, timeout=8)
            case "warning":
                self.notify(shown, severity="warning", markup=False)
            case _:
                self.notify(shown, markup=False)

    def failed(self, doing: str, error: SbxError, keys: Iterable[str] = ()) -> None:
        """Keep an error for `o`, in the rows of `keys` too, and toast it."""
        self.last_error = (clock.now(), doing, error)
        for key in keys:
            self.fleet.note_failure(key, doing, error)
        self.tell(f"{doing}: {error.message} (o explains)", "error", error)

    def open_page(self, title: str, text: str) -> None:
        """Show a page of text over the dashboard."""
        from sbxtui.tui.screens.page import PageScreen

        self.app.push_screen(PageScreen(title, text, lambda shown: self.copy(shown, "the page")))

    @worker(exclusive=True, group="lend")
    async def lend(self, words: Sequence[str]) -> None:
        """Give the whole terminal to a line of `sbx` until that ends, then draw everything anew."""
        line = [words[0], *same_flags(self.settings, self.services.context.name), *words[1:]]
        try:
            code, said = await lend_terminal(self.app, line)
        except SuspendNotSupported:
            self.tell("this terminal cannot be lent to another program", "warning")
        except SbxError as exc:
            self.failed(f"sbx {words[0]}", exc)
        else:
            # What ended as it should is seen to be over.
            if said or code:
                words_said = said or f"`sbx {words[0]}` ended with exit code {code}"
                self.tell(words_said, "warning" if code else "information")

    def do_notes(self) -> None:
        """Show what was said lately."""
        self.open_page("Messages", self.notes.text())

    def copy(self, text: str, what: str) -> None:
        """Copy harmless text: to the terminal's clipboard if it fits, and into a file; says which."""
        text = harmless(text)
        if not text:
            self.tell("there is nothing to copy", "warning")
            return
        if fits_sequence(text):
            self.app.copy_to_clipboard(text)
        self._keep_copy(text, what)

    @worker(exclusive=True, group="theme")
    async def keep_theme(self, name: str) -> None:
        """Start with this theme from now on."""
        try:
            await asyncio.to_thread(remember_theme, self.settings.home, name)
        except SbxError as exc:
            self.tell(f"theme {name} is not remembered: {exc.message}", "warning", exc)

    @worker(exclusive=True, group="copy")
    async def _keep_copy(self, text: str, what: str) -> None:
        try:
            file = await asyncio.to_thread(keep_copy, self.settings.home, text)
        except SbxError as exc:
            self.tell(f"{copied_words(what, text, None)}; {exc.message}", "warning", exc)
            return
        self.tell(copied_words(what, text, file))
