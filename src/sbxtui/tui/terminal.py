"""Drawing on a terminal that may go away: a dropped connection ends the dashboard and never blocks it.

Textual's writer dies of the first failed write, and whatever is drawn afterwards waits for it forever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import IO, Any

from textual.drivers.linux_driver import LinuxDriver

from sbxtui.tui.glyphs import is_plain, plain
from sbxtui.tui.quieting import Attributes


class LosableFile:
    """The part of a file that textual's writer uses; after the first failure everything written is dropped.

    Args:
        file: The terminal.
        on_lost: Called once, in the writing thread, when the terminal went away.
        glyphs: Which signs to draw with, as `[ui]` says; empty leaves it to the terminal's encoding.
    """

    def __init__(self, file: IO[str], on_lost: Callable[[], None], glyphs: str = "") -> None:
        self._file = file
        self._encoding = getattr(file, "encoding", None) or "utf-8"
        self._is_plain = is_plain(glyphs, self._encoding)
        self._on_lost = on_lost
        self._is_lost = False

    def write(self, text: str) -> None:
        """Write, or drop what nobody can see any more."""
        drawn = plain(text, self._encoding) if self._is_plain else text
        self._try(lambda: self._file.write(drawn))

    def flush(self) -> None:
        """Flush, if there is still something to flush to."""
        self._try(self._file.flush)

    def fileno(self) -> int:
        """The terminal's descriptor."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether it was a terminal."""
        return self._file.isatty()

    def _try(self, act: Callable[[], object]) -> None:
        if self._is_lost:
            return
        try:
            act()
        except (OSError, ValueError):
            self._is_lost = True
            self._on_lost()


class TerminalDriver(LinuxDriver):
    """Textual's driver, told apart only when the terminal goes away: then `app.terminal_lost` is called on its loop."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self._file: Any = LosableFile(self._file, self._lost, app.settings.ui.glyphs)
        self._found: Attributes | None = app.terminal

    def start_application_mode(self) -> None:
        """As Textual's, which would leave the terminal as it is now: that may be without echo already."""
        super().start_application_mode()  # type: ignore[no-untyped-call]  # as textual has it
        if self._found is not None:
            # Given back once, it is as others left it.
            self.attrs_before, self._found = self._found, None

    def run_input_thread(self) -> None:
        """Read keys until the end; a terminal that cannot be read is lost."""
        try:
            super().run_input_thread()
        except OSError:
            self._lost()

    def write(self, data: str) -> None:
        """Draw; while the terminal is lent to another program, what is drawn is dropped: all is drawn anew after.

        Textual ends each line of a frame with a line feed, and then says where the next one goes. On a terminal that
        has fewer lines by now, the feeds scroll it.
        """
        if self._writer_thread is not None:
            super().write(data.replace("\n", ""))

    def close(self) -> None:
        """Stop drawing. Textual's writer would be written to on, and block the dashboard once its queue is full."""
        super().close()
        self._writer_thread = None

    def _lost(self) -> None:
        loop: asyncio.AbstractEventLoop = self._loop
        # The loop may have ended by now; then so has the dashboard.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._app.terminal_lost)  # type: ignore[attr-defined]  # the dashboard has it
