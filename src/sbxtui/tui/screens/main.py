"""The main screen: the list, the detail of the selected sandbox, and the bars around them."""

from __future__ import annotations

from collections.abc import Iterator

from textual import on
from textual.app import ComposeResult
from textual.containers import Container
from textual.geometry import Size
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from sbxtui.core.isolation import NO_SHORTFALL, Shortfall
from sbxtui.core.model import SandboxId, SandboxRecord
from sbxtui.tui import clock, messages
from sbxtui.tui.compositor import LineCompositor
from sbxtui.tui.fleet import key_of
from sbxtui.tui.keymap import Keymap, keymap_of
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.screens.sparking import Sparking
from sbxtui.tui.tabs.base import Tab, View
from sbxtui.tui.tabs.registry import all_actions
from sbxtui.tui.themes import REVERSING_THEMES
from sbxtui.tui.widgets.bars import Header, KeyBar, StatusBar
from sbxtui.tui.widgets.panes import DetailPane, FilterInput, FleetPane
from sbxtui.tui.widgets.table import FleetTable
from sbxtui.tui.words import names_text, shown_name

_DETAIL_REST_S = 0.3
_VERBS = {
    "suspending": "stop",
    "resuming": "start",
    "removing": "remove",
    "forking": "fork",
    "copying": "snapshot",
    "restoring": "restore",
    "giving": "secret",
    "taking": "secret",
    "renaming": "rename",
    "adopting": "adopt",
    "keeping awake": "keep-awake",
    "budgeting": "budget",
}


class MainScreen(Sparking):
    """Everything on one screen; `do` is the one entry of every key, click and palette line."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  # textual declares it so
        (0, "-tiny"),
        (40, "-narrow"),
        (60, "-stacked"),
        (120, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012  # the same
        (0, "-flat"),
        (10, "-short"),
        (15, "-tall"),
        (30, "-roomy"),
    ]

    def __init__(self, first_look: FirstLook, keymap: Keymap, *, is_looked: bool) -> None:
        super().__init__(first_look, keymap)
        self._compositor = LineCompositor()
        self._is_looked = is_looked
        self.record: SandboxRecord | None = None
        self._is_drawn = False
        self._is_watching = False
        self._awaited_name = ""

    def compose(self) -> ComposeResult:
        # Textual says them after a first layout only, which would be for nothing.
        self.add_class(*_classes_at(self.app.size))
        yield Header(id="header")
        with Container(id="body"):
            yield FleetPane(self.fleet, id="fleet")
            yield DetailPane(self._filled, id="detail")
        yield StatusBar(id="status")
        yield KeyBar(id="keys")
        yield Static("sbx needs a screen of at least 40 columns and 10 lines", id="too-small", markup=False)

    def on_mount(self) -> None:
        self.set_class(self.app.theme in REVERSING_THEMES, "-reversing")
        # At once: what was typed before may go elsewhere by now.
        self.set_focus(self.query_one(FleetTable))
        self._show_keys()
        if self._is_looked:
            self._opened(self.first_look)
        else:
            self.draw()
            self.open_again()
        self.set_interval(1.0, self._tick)
        self.call_after_refresh(self._drawn)

    async def _drawn(self) -> None:
        """The first frame is there: now to what it would have waited for, the newest states before the other tabs."""
        self._is_drawn = True
        self._watch()
        self.dashboard.read_later_styles()
        await self.mount(FilterInput(id="filter"), before=self.query_one(StatusBar))
        await self.query_one(DetailPane).fill()

    def _filled(self) -> None:
        """All tabs are there, and so are all keys."""
        self.take_keymap(keymap_of(all_actions(), self.settings))
        for problem in self.keymap.problems:
            self.tell(problem, "warning")
        self._show_keys()

    # What workers tell.

    @on(messages.Opened)
    def opened(self) -> None:
        """The first look is over."""
        self._opened(self.first_look)

    @on(messages.Seen)
    def seen(self, message: messages.Seen) -> None:
        """Show what the control plane said."""
        if self.fleet.context is None or message.inventory.context.name != self.fleet.context.name:
            # An answer of the context that was looked at before.
            return
        from sbxtui.tui.screens.create import CreateScreen

        is_news = message.isolation != self.isolation
        self.isolation = message.isolation
        self._note_shortfall(message.shortfall)
        if isinstance(dialog := self.app.screen, CreateScreen):
            dialog.tell_isolation(message.isolation)
        if self.fleet.take(message.inventory, is_cached=False) or is_news:
            self._go_to_awaited()
            self.draw()
        else:
            self.query_one(FleetPane).tick()

    def _note_shortfall(self, shortfall: Shortfall) -> None:
        """Told once, where there is something to mend; what is merely not installed is told to who asks."""
        if shortfall != self.shortfall and shortfall.is_fault:
            self.tell(f"new sandboxes get a weaker isolation: {shortfall.words}", "warning")
        self.shortfall = shortfall

    @on(messages.Progress)
    def progressed(self, message: messages.Progress) -> None:
        """Say what is being done."""
        self.query_one(StatusBar).begin(message.work, message.words)

    @on(messages.Created)
    def created(self, message: messages.Created) -> None:
        """Go to the new sandbox, or say why there is none."""
        if message.error is not None:
            self.end_work(message.work, f"create failed: {message.error.message}", "warn")
            self.failed(f"create {message.name}".strip(), message.error)
            return
        self.end_work(message.work, f"created {message.name}", "good")
        self._awaited_name = message.name
        self._go_to_awaited()
        self.services.watch.look_now()
        self.draw()

    @on(messages.LossesSeen)
    def losses_seen(self, message: messages.LossesSeen) -> None:
        """Say in the dialog what would be ended, if that still is what it asks."""
        from sbxtui.tui.screens.confirm import ConfirmScreen

        dialog = self.app.screen
        if isinstance(dialog, ConfirmScreen) and dialog.about is message.targets:
            dialog.tell_more(message.lines)

    @on(messages.Changed)
    def changed(self, message: messages.Changed) -> None:
        """Say what became of each."""
        good = [one for one in message.outcomes if one.error is None]
        bad = [one for one in message.outcomes if one.error is not None]
        words = [f"{message.done} {names_text([one.name for one in good])}"] if good else []
        # Suspending says when the platform will end it: that is worth the line.
        more = good[0].words.removeprefix(message.done).lstrip("; ") if len(good) == 1 else ""
        words += [more] if more else []
        failed = [f"{_verb_of(message.work)} {names_text([one.name for one in bad])} failed"] if bad else []
        self.end_work(message.work, "; ".join([": ".join(words)] * bool(words) + failed), "warn" if bad else "good")
        keys = {shown_name(one): key_of(one) for one in message.targets}
        for one in good:
            self.fleet.forget_failure(keys.get(one.name, ""))
        for one in bad:
            assert one.error is not None
            self.failed(_verb_of(message.work), one.error, [keys[one.name]] if one.name in keys else [])
        self.draw()
        self.services.watch.look_now()

    @on(messages.RecordSeen)
    def record_seen(self, message: messages.RecordSeen) -> None:
        """Show a record in the overview, and as a page when it was asked for."""
        selected = self.fleet.selected
        if message.error is not None:
            if message.is_asked:
                self.failed("record", message.error)
            return
        if selected is None or selected.id != message.sandbox_id or message.record is None:
            return
        self.record = message.record
        self._draw_detail()
        if message.is_asked:
            self.show_record(selected, message.record)

    def last_output(self) -> str:
        """What the last command printed in the selected sandbox."""
        return next((said for tab in self.query(Tab) if (said := tab.last_output())), "")

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that failed as no service promises: keep a report, tell, and go on."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.post_message(messages.WorkFailed(event.worker.error))

    @on(messages.ContextsSeen)
    def contexts_seen(self, message: messages.ContextsSeen) -> None:
        """Ask which one."""
        self.choose_context(message.contexts)

    # What widgets tell.

    @on(FleetTable.Moved)
    def moved(self) -> None:
        """Another sandbox is selected: show it, and look up its record once the cursor rests."""
        self.record = None
        self._draw_detail()
        selected = self.fleet.selected
        if selected is not None and selected.id and self._is_watching:
            self.set_timer(_DETAIL_REST_S, lambda: self._rested(selected.id))

    @on(FleetTable.Opened)
    def open_detail(self) -> None:
        """Go to the detail; where there is nothing yet, make the first sandbox."""
        if not self.fleet.all and self.is_open and not self.fleet.is_cached and self.fleet.error is None:
            self.act("create")
            return
        self._to_front("detail", self.query_one(DetailPane).first_inside())

    @on(FleetTable.SortAsked)
    def sort_asked(self, message: FleetTable.SortAsked) -> None:
        """Sort by the clicked column."""
        self.fleet.sort_by(message.keys)
        self.draw()

    @on(Input.Changed, "#filter")
    def filter_changed(self, event: Input.Changed) -> None:
        """Filter while typing; what cannot be read yet is said, and filters nothing."""
        self.fleet.set_filter(event.value)
        self.draw()

    @on(Input.Submitted, "#filter")
    def filter_entered(self) -> None:
        """Back to the list; the filter stays."""
        self.query_one(FleetTable).focus()

    def on_resize(self) -> None:
        self.keep_focus()

    def on_app_focus(self) -> None:
        self._look_at(True)

    def on_app_blur(self) -> None:
        self._look_at(False)

    def busy_words(self) -> list[str]:
        """Launches, changes and running commands."""
        tabs = self.query_one(DetailPane).tabs
        return super().busy_words() + [words for tab in tabs for words in tab.busy_words()]

    def _opened(self, look: FirstLook) -> None:
        if look.opening is None:
            if look.error is not None:
                self.last_error = (clock.now(), "opening", look.error)
            self.draw()
            return
        self.isolation = look.opening.isolation
        self.fleet.take(look.opening.inventory, is_cached=True)
        self.draw()
        self._watch()

    def _watch(self) -> None:
        """Begin all that follows what was opened; once only, and not before the first frame."""
        if self._is_drawn and self.is_open and not self._is_watching:
            self._is_watching = True
            self.follow()
            self.follow_alarms()
            self.follow_cpu()
            self.query_one(DetailPane).opened()
            # What is under the cursor came there before anything could be looked up.
            self.moved()

    def change_context(self, look: FirstLook) -> None:
        """Show another context, once its look is over."""
        for group in ("watch", "alarms", "cpu", "record", "open"):
            self.workers.cancel_group(self, group)
        self.first_look = look
        self.fleet.reset()
        self.isolation, self.shortfall, self.record = "", NO_SHORTFALL, None
        self._is_watching = False
        self.draw()
        self.open_again()

    def _go_to_awaited(self) -> None:
        """Put the cursor on what was just made, as soon as the list has it."""
        row = next((one for one in self.fleet.all if one.name == self._awaited_name), None)
        if self._awaited_name and row is not None:
            self._awaited_name = ""
            self.fleet.move_to_key(key_of(row))

    def _rested(self, sandbox_id: SandboxId) -> None:
        selected = self.fleet.selected
        if selected is not None and selected.id == sandbox_id and self.record is None:
            self.look_up(sandbox_id, is_asked=False)

    def _look_at(self, is_looked_at: bool) -> None:
        if self._is_watching:
            self.services.watch.set_looked_at(is_looked_at)

    def draw(self) -> None:
        """Draw everything as it is now."""
        self.query_one(Header).show(self.fleet, self.isolation, is_read_only=self.keymap.is_read_only)
        self.query_one(StatusBar).set_marks(len(self.fleet.marks))
        self.query_one(FleetPane).show(self.first_look.error, self.isolation, self.keymap.key_to)
        self._draw_detail()
        if self.has() is not self._told_has and self.is_current:
            self._show_keys()

    def _draw_detail(self) -> None:
        self.query_one(DetailPane).show(View(self.fleet, self.record))

    def _tick(self) -> None:
        """Once a second: what is old gets older, what runs runs longer."""
        self.dashboard.collector.tick()
        self.query_one(FleetPane).tick()
        self.query_one(StatusBar).tick()
        self.query_one(Header).tick()
        for tab in self.query_one(DetailPane).shown_tabs():
            tab.tick()


def _classes_at(size: Size) -> Iterator[str]:
    """The classes of a terminal of that size."""
    for length, breakpoints in (
        (size.width, MainScreen.HORIZONTAL_BREAKPOINTS),
        (size.height, MainScreen.VERTICAL_BREAKPOINTS),
    ):
        yield max(one for one in breakpoints if one[0] <= length)[1]


def _verb_of(work: str) -> str:
    """What a piece of work does, from its name: `suspending-3`."""
    return _VERBS.get(work.rpartition("-")[0], "it")
