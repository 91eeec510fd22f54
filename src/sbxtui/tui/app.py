"""The dashboard's application: themes, palette, signals, crashes. `run_dashboard` is the way in."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.segment import Segments
from rich.text import Text
from textual import events, on
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import ModalScreen, Screen
from textual.timer import Timer
from textual.worker import WorkerError

from sbxtui.core.text import harmless_line
from sbxtui.settings import Settings
from sbxtui.tui.collecting import Collector
from sbxtui.tui.crash import write_crash_report
from sbxtui.tui.enduring import Enduring
from sbxtui.tui.feeding import KEYS
from sbxtui.tui.gate import OnlyText
from sbxtui.tui.keymap import keymap_of
from sbxtui.tui.messages import ContextAsked, LeaveAsked, WorkFailed
from sbxtui.tui.opening import FIRST_FRAME_WAIT_S, FirstLook
from sbxtui.tui.operations import BUSY_GROUPS
from sbxtui.tui.quieting import Attributes
from sbxtui.tui.remembering import remembered_theme
from sbxtui.tui.screens.main import MainScreen
from sbxtui.tui.tabs.registry import first_actions
from sbxtui.tui.terminal import TerminalDriver
from sbxtui.tui.themes import DEFAULT_THEME, MONO_THEME, THEMES
from sbxtui.tui.working import worker
from sbxtui.wiring import Services

_HANGUP_EXIT_CODE = 128 + signal.SIGHUP
# Opening the palette from itself, and leaving it, are no commands.
_NOT_IN_PALETTE = frozenset({"palette", "back"})
# Ending a command takes up to 5 s; a launch that cannot be taken back by then is replayed by the next sbx.
_LEAVE_DEADLINE_S = 8.0
_TERMINATED_EXIT_CODE = 128 + signal.SIGTERM
_LATER_STYLES = Path(__file__).with_name("later.tcss")
_PAINT_EVERY_S = 1 / 15
_FAR_PAINT_EVERY_S = 1 / 5
# Threads that read keys and draw wait so long for one that computes; Python's own is five times that, and felt.
_TURN_S = 0.001


def run_dashboard(
    settings: Settings, services_factory: Callable[[str], Services], *, terminal: Attributes | None = None
) -> int:
    """Run the dashboard until the person leaves.

    Args:
        settings: Resolved settings.
        services_factory: Builds the services of a context (empty: the one that counts), in a thread. Closed here.
        terminal: The terminal as it is to be left, where that is not as it is now.

    Returns:
        The exit code: 0 left on purpose, 1 crashed, 128+n ended by signal n.
    """
    sys.setswitchinterval(_TURN_S)
    gc.disable()
    look = FirstLook(services_factory)
    look.start()
    app = Dashboard(settings, look, terminal=terminal)
    try:
        app.run(mouse=settings.ui.mouse)
        return app.return_code or 0
    finally:
        for one in app.looks:
            if one.services is not None:
                one.services.close()


class Dashboard(Enduring, App[None]):
    """One main screen with dialogs over it."""

    TITLE = "sbx"
    CSS_PATH = "sbxtui.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    # Textual's own ctrl+c; every other key is in the registry of actions.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "hint_quit", show=False, system=True)]

    def __init__(self, settings: Settings, look: FirstLook, *, terminal: Attributes | None = None) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.settings = settings
        self.terminal = terminal
        self.look = look
        self.looks = [look]
        self._is_leaving = False
        self.held: list[Callable[[], None]] = []
        self._only_text = OnlyText()
        self.collector = Collector()
        self.animation_level = "none"
        for theme in THEMES:
            self.register_theme(theme)
        # Colour filters were chosen before any theme of ours; mono needs none of them.
        name = settings.ui.theme or remembered_theme(settings.home)
        chosen = f"sbx-{name}" if name else DEFAULT_THEME
        self.theme = MONO_THEME if self.no_color else chosen
        self._css_variables = self.get_css_variables()
        self.stylesheet.set_variables(self._css_variables)

    def refresh_css(self, animate: bool = True) -> None:
        """As Textual's, which would parse all styles once more at the start, for the theme they were parsed with."""
        variables = self.get_css_variables()
        if variables == self._css_variables:
            self.stylesheet.update(self, animate=animate)
            return
        self._css_variables = variables
        super().refresh_css(animate)

    def read_later_styles(self) -> None:
        """Add the rules of what the first frame does not show: it would wait for them."""
        self.stylesheet.add_source(_LATER_STYLES.read_text(encoding="utf-8"), read_from=(str(_LATER_STYLES), ""))

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key):
            KEYS.pressed()
        await super().on_event(event)

    def get_default_screen(self) -> Screen[Any]:
        keymap = keymap_of(first_actions(), self.settings)
        return MainScreen(self.look, keymap, is_looked=self.look.wait(FIRST_FRAME_WAIT_S))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action with its key, its consequence and the CLI line that does the same."""
        if not isinstance(screen, MainScreen):
            return
        for action in screen.actions_here():
            if action.id in _NOT_IN_PALETTE or not (action.cli or action.consequence) or action.is_native:
                continue
            text = " · ".join(part for part in (action.consequence, action.cli) if part)
            # Both texts are taken for markup.
            yield SystemCommand(
                f"{action.label}  ({action.shown_key})", text.replace("[", "\\["), _doer(screen, action.id)
            )

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number, code in ((signal.SIGHUP, _HANGUP_EXIT_CODE), (signal.SIGTERM, _TERMINATED_EXIT_CODE)):
            loop.add_signal_handler(number, self.leave, code)
        self.app_resume_signal.subscribe(self, self._draw_all, immediate=True)

    def _draw_all(self, _: object) -> None:
        """Back from the shell the terminal is empty, which Textual's record of what it drew does not know."""
        for screen in self.screen_stack:
            for widget in (screen, *screen.walk_children()):
                widget.refresh()

    def on_ready(self) -> None:
        """The first frame is drawn; until then nothing was looked through for what may go."""
        self.collector.begin()

    def _check_resize(self) -> None:
        """As Textual's; the size that the screen has already is news, too.

        The terminal had another one meanwhile, be it for a moment, and lost or moved what stood on it. Textual would
        lay out nothing anew, and draw nothing.
        """
        event = self._resize_event
        super()._check_resize()
        if event is not None and self._running and event.size == self.screen.size:
            self._draw_all(event)

    def set_timer(self, *args: Any, **options: Any) -> Timer:
        """As Textual's, but it always rings.

        One of Textual's that is looked at only after its time, as on a busy machine, never does; and with the one
        that a new size waits for, no size would ever count again.
        """
        timer = super().set_timer(*args, **options)
        timer._skip = False
        return timer

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """A toast; while a dialog is open it is held back, for it would lie over that."""
        say = partial(super().notify, message, title=title, severity=severity, timeout=timeout, markup=markup)
        if isinstance(self.screen, ModalScreen):
            self.held.append(say)
        else:
            say()

    def say_held(self) -> None:
        """Say what was held back; the dialog is gone."""
        held, self.held = self.held, []
        for say in held:
            say()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and the last gate."""
        return [*super().get_line_filters(), self._only_text]

    @property
    def paint_every_s(self) -> float:
        """So seldom floods of text are drawn; what lies between us and the eye would fall behind, or flicker."""
        return _FAR_PAINT_EVERY_S if self.settings.is_far_terminal else _PAINT_EVERY_S

    @property
    def can_suspend(self) -> bool:
        """Whether the terminal belongs to a shell that the program can be given back to."""
        return self._driver is not None and self._driver.can_suspend

    def action_hint_quit(self) -> None:
        self.notify("q quits", markup=False)

    async def action_quit(self) -> None:
        """Ctrl-Q asks as q does."""
        if isinstance(self.screen, MainScreen):
            self.screen.act("quit")

    @on(ContextAsked)
    def context_asked(self, message: ContextAsked) -> None:
        """Look at another context; what the one before uses is closed at the end, when no thread can still be in it."""
        self.look = self.look.at(message.name)
        self.looks.append(self.look)
        self.look.start()
        main = self.screen_stack[0]
        if isinstance(main, MainScreen):
            main.change_context(self.look)

    def leave(self, code: int) -> None:
        """End with `code`, after what would be cut off ended in order: a command in its guest, a launch taken back.

        Only the first call counts: cancelling twice would cut off the ending itself.
        """
        if not self._is_leaving:
            self._is_leaving = True
            self._leave(code)

    @worker(group="leave")
    async def _leave(self, code: int) -> None:
        busy = [one for one in self.workers if one.group in BUSY_GROUPS and not one.is_finished]
        for one in busy:
            one.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_DEADLINE_S):
                for one in busy:
                    with contextlib.suppress(WorkerError):
                        await one.wait()
        self.exit(None, code)

    def terminal_lost(self) -> None:
        """Leave as after a hang-up: nobody can see or type anything any more."""
        self.leave(_HANGUP_EXIT_CODE)

    @on(LeaveAsked)
    def leave_asked(self) -> None:
        """Leave on purpose."""
        self.leave(0)

    @on(WorkFailed)
    def work_failed(self, message: WorkFailed) -> None:
        """Keep a report of a worker's failure and say where; the dashboard goes on."""
        error = message.error
        file = write_crash_report(self.settings.home, error)
        where = f"report: {file}" if file else "no report could be written"
        words = f"something failed inside sbx ({type(error).__name__}); {where}"
        self.notify(harmless_line(words), severity="error", markup=False, timeout=8)

    def missed(self, error: NoMatches) -> None:
        """A handler or a timer looked for a widget that is not there; on the way out there is none to be looked for."""
        if self._running and not self._exit:
            self.post_message(WorkFailed(error))

    def _handle_exception(self, error: Exception) -> None:
        """As Textual's, which ends everything; not for a widget that a timer misses."""
        if isinstance(error, NoMatches):
            self.missed(error)
        else:
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Textual's own would print local variables, which may hold secrets; ours prints where the report is."""
        error = self._exception
        file = write_crash_report(self.settings.home, error) if error is not None else None
        name = type(error).__name__ if error is not None else "an error"
        words = f"error: the dashboard crashed ({name})\n\nhint: the report is in {file or 'no file: it is unwritable'}"
        self._exit_renderables.append(Segments(self.console.render(Text(words), self.console.options)))
        self._close_messages_no_wait()


def _doer(screen: MainScreen, action_id: str) -> Callable[[], None]:
    def do() -> None:
        # After the palette is gone, so that an action may open a dialog of its own.
        screen.call_later(screen.action_do, action_id)

    return do
