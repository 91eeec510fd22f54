"""The sync tab: a folder of this machine and the sandbox's, how equal they are, and what there is to decide on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.text import harmless_line
from sbxtui.tui import clock
from sbxtui.tui.actions import SANDBOXES
from sbxtui.tui.preview import NOTHING
from sbxtui.tui.synclines import item_row, left_rows, state_lines
from sbxtui.tui.tabs.syncasking import ACTIONS, PATCH, SYNC, SyncAsking
from sbxtui.tui.tabs.syncwork import LookedAt, Patched, SyncDone, SyncSeen
from sbxtui.tui.widgets.fileview import VIEW, FileView
from sbxtui.tui.widgets.rows import RowList
from sbxtui.tui.words import shown_name, state_text

__all__ = ["ACTIONS", "SyncTab"]

if TYPE_CHECKING:
    from sbxtui.services.sync.desk import Found, Item
    from sbxtui.services.sync.views import SyncView


class SyncTab(SyncAsking):
    """How the selected sandbox's sync is, and below it what there is to decide on; a diff stands beside or instead."""

    SCOPES: ClassVar[tuple[str, ...]] = (SYNC, SANDBOXES)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._is_told = False
        self._is_looking = False
        self._problem = ""
        self._done_before = 0
        self._shown_item: Item | None = None

    def compose(self) -> ComposeResult:
        yield Static("", id="sync-state", markup=False)
        with Container(id="sync-body"):
            yield RowList((SYNC, SANDBOXES), id="sync-items")
            yield FileView((PATCH, VIEW), id="sync-patch")
        yield Static("", id="sync-status", markup=False)

    # Which sandbox.

    def turned(self) -> None:
        """Nothing is known of another one's sync yet."""
        self.workers.cancel_group(self, "look")
        self.view, self.found = None, None
        self._is_told, self._is_looking, self._problem = False, False, ""
        self._close_patch()
        self.draw()

    def begin_watch(self, *, is_asked: bool) -> None:
        """Watch how it is, which costs the sandbox nothing; look at both sides only where the person wants to know."""
        if self.sandbox is None or not self.is_watchable:
            self.end_watch()
            return
        self.watch_sync(self.sandbox)
        if is_asked and self.found is not None:
            self.look()

    @property
    def opened_item(self) -> Item | None:
        """What the diff is of."""
        return self._shown_item

    @property
    def selected(self) -> Item | None:
        """What the cursor is on, if it can be decided on."""
        row = self.query_one(RowList).selected
        items = self.found.items if self.found is not None else ()
        return next((item for item in items if row is not None and item_row(item, 80).key == row.key), None)

    def first_inside(self) -> Widget:
        """The list, or what stands in its place."""
        return self.query_one(FileView) if self.has_class("-viewing") else self.query_one(RowList)

    def stops(self) -> list[Widget]:
        """The list and the diff below it; where only one is shown, that one."""
        both: list[Widget] = [self.query_one(RowList), self.query_one(FileView)]
        return both if self.has_class("-viewing") and self.has_class("-both") else [self.first_inside()]

    def title(self) -> str:
        """Its state."""
        return self.view.state if self.view is not None else ""

    def tick(self) -> None:
        """The last look gets older."""
        self._draw_state()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height >= 18, "-both")
        self.draw()

    # What workers tell.

    @on(SyncSeen)
    def seen(self, message: SyncSeen) -> None:
        """Show how it is; what only the sandbox has is looked at once there is some."""
        if not self.is_about(message.key):
            return
        before, self.view, self._is_told = self.view, message.view, True
        self._problem = harmless_line(message.error.message) if message.error is not None else ""
        self._count_progress(before)
        if self.view is None:
            self.found = None
            self._close_patch()
        elif (
            self.found is None
            and self._is_awake
            and (self.view.count("conflict_count") or self.view.count("guest_changes"))
        ):
            self.look()
        self.draw()

    @on(LookedAt)
    def looked_at(self, message: LookedAt) -> None:
        """Show what differs."""
        if not self.is_about(message.key):
            return
        self._is_looking = False
        is_first, self.found = self.found is None, message.found or self.found
        self._problem = harmless_line(message.error.message) if message.error is not None else ""
        if message.error is not None:
            self.main.failed("sync diff", message.error)
        self.draw()
        if is_first:
            self.query_one(RowList).move_to(0)

    @on(Patched)
    def patched(self, message: Patched) -> None:
        """Show the diff."""
        if not self.is_about(message.key):
            return
        if message.error is not None or message.preview is None:
            if message.error is not None:
                self.main.failed("sync diff", message.error)
            return
        is_same = self._shown_item == message.item
        self._shown_item = message.item
        view = self.query_one(FileView)
        view.show(message.preview)
        self.add_class("-viewing")
        if not is_same:
            self.call_after_refresh(self.screen.set_focus, view)
        self.draw()

    def rethemed(self) -> None:
        """Show the same diff again."""
        if self.sandbox is not None and self._shown_item is not None:
            self.show_patch(self.sandbox, self._shown_item)

    @on(SyncDone)
    def done(self, message: SyncDone) -> None:
        """Say what became of it; both sides are looked at again after a decision."""
        if message.error is not None:
            self.main.end_work(message.doing, f"{message.doing} failed: {message.error.message}", "warn")
            self.main.failed(message.doing, message.error)
        else:
            self.main.end_work(message.doing, message.words, "good")
        if message.is_decision and self.is_about(message.key):
            self._close_patch()
            self.look()

    @on(RowList.Opened)
    def row_opened(self) -> None:
        """A second click shows the diff."""
        self.do_sync_diff()

    # What the person does.

    def look(self) -> None:
        """Look at both sides anew."""
        if self.sandbox is not None and self.view is not None:
            self._is_looking = True
            self.look_at(self.sandbox)
            self.draw()

    def do_back(self) -> None:
        """Close the diff first."""
        if self.has_class("-viewing"):
            self._close_patch()
            self.screen.set_focus(self.query_one(RowList))
        else:
            self.main.do_back()

    def do_patch_copy(self) -> None:
        """Copy what is selected, else the patch."""
        selected = self.screen.get_selected_text()
        texts = self.query_one(FileView).preview.texts
        self.main.copy(selected or "\n".join(texts), "the selection" if selected else "the patch")

    # Drawing.

    def keys_moved(self) -> None:
        """The line below says keys."""
        self._say()

    def draw(self) -> None:
        """Draw everything as it is now."""
        self._draw_state()
        rows = self.query_one(RowList)
        width = max(20, rows.size.width - 2)
        found, view = self.found, self.view
        shown = [item_row(item, width) for item in (found.items if found is not None else ())]
        left = dict(view.problems if view is not None else ()) | dict(found.refused if found is not None else ())
        rows.show([*shown, *left_rows(sorted(left.items()), width)])
        self._say()

    def _draw_state(self) -> None:
        state = self.query_one("#sync-state", Static)
        if self.view is None or self.sandbox is None:
            content = Content("")
        else:
            width = max(20, self.size.width - 2)
            lines = state_lines(self.view, shown_name(self.sandbox), clock.now(), done=self._done, width=width)
            content = Content("\n").join(Content.styled(words, f"$sbx-{tone}" if tone else "") for words, tone in lines)
        if content != state.content:
            state.update(content)

    def _say(self) -> None:
        self.say("#sync-status", harmless_line(self.words_of(self.sandbox, self._status)))

    def _status(self, sandbox: Sandbox) -> str:
        name, view = shown_name(sandbox), self.view
        if self.has_class("-viewing"):
            preview = self.query_one(FileView).preview
            return f"{preview.path} · {preview.words} · esc closes it"
        if self._is_looking:
            return f"looking at both sides of {name} …"
        if self._problem:
            return self._problem
        if view is None:
            what = f"{name} is not synced with a folder here" if self._is_told else f"asking how {name} is synced …"
            return what + f" · {self.keys_to('sync_start')} begins that" * bool(self._is_told and not self.is_read_only)
        if self.found is not None:
            return self._found_words(self.found)
        wakes = "" if self._is_awake else f", which wakes it: it is {state_text(sandbox.state)}"
        return f"{self.keys_to('sync_look')} looks at both sides{wakes}"

    def _found_words(self, found: Found) -> str:
        conflicts = sum(item.is_conflict for item in found.items)
        changes = len(found.items) - conflicts
        if not found.items:
            return "the sandbox has nothing that is not here, too"
        # How many of each stands above the list, where there is room for it.
        parts = [
            f"{count} {words}" for count, words in ((conflicts, "in conflict"), (changes, "changed there")) if count
        ]
        keys = ["a theirs", "x ours", *["b both", "m merge"] * bool(conflicts), *["A all theirs"] * bool(changes)]
        return " · ".join((*found.halts, *(keys if not self.is_read_only else parts)))

    def _count_progress(self, before: SyncView | None) -> None:
        """How many changes of those being carried over are over: those since nothing was pending."""
        view = self.view
        if view is None or not view.count("pending"):
            self._done_before = view.count("pushed") if view is not None else 0
        elif before is None and view.state != "seeding":
            self._done_before = view.count("pushed")

    @property
    def _done(self) -> int:
        return max(0, self.view.count("pushed") - self._done_before) if self.view is not None else 0

    @property
    def _is_awake(self) -> bool:
        return self.sandbox is not None and self.sandbox.state is SandboxState.RUNNING

    def _close_patch(self) -> None:
        self.remove_class("-viewing")
        self._shown_item = None
        self.query_one(FileView).show(NOTHING)
        self._say()
