"""What every tab of the detail is: shown one sandbox at a time, with its own keys and its own background work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, cast

from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from sbxtui.core.model import Sandbox, SandboxRecord
from sbxtui.core.values import dataclass
from sbxtui.tui.actions import SANDBOXES
from sbxtui.tui.enduring import Enduring
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.messages import WorkFailed
from sbxtui.tui.words import shown_name

if TYPE_CHECKING:
    from sbxtui.tui.screens.helping import Helping
    from sbxtui.wiring import Services


@dataclass(frozen=True, slots=True)
class View:
    """What the detail is about: the sandbox under the cursor, and what is known around it."""

    fleet: Fleet
    record: SandboxRecord | None

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox under the cursor."""
        return self.fleet.selected


class Tab(Enduring, Vertical):
    """A tab. Its actions are `do_<id>` methods; its workers are `@worker(group=…)` methods.

    Attributes:
        SCOPES: Scopes of actions that work while the focus is inside, nearest first.
    """

    SCOPES: ClassVar[tuple[str, ...]] = (SANDBOXES,)

    @property
    def main(self) -> Helping:
        """The main screen, for telling, asking and for what changes sandboxes."""
        return cast("Helping", self.screen if not self.app.screen_stack else self.app.screen_stack[0])

    @property
    def services(self) -> Services:
        """The services of the context; to be used only after `opened`."""
        return self.main.services

    @property
    def is_read_only(self) -> bool:
        """Whether nothing may be changed."""
        return self.main.settings.ui.read_only

    @property
    def is_in_view(self) -> bool:
        """Whether this tab is shown now: then it may look at things."""
        return self.display

    def opened(self) -> None:
        """The store is open: background work may begin."""

    def show(self, view: View) -> None:
        """Show the sandbox under the cursor; called at every change of anything, so cheap when nothing is new."""

    def brought(self) -> None:
        """The person brought this tab to the front."""

    def tick(self) -> None:
        """A second went by while in view."""

    def rethemed(self) -> None:
        """The theme is another one: what was coloured for the one before is to be coloured anew."""

    def first_inside(self) -> Widget:
        """What gets the focus when the tab does."""
        return self

    def stops(self) -> list[Widget]:
        """Where the next-pane key stops in this tab, in order; what takes no focus now is passed over."""
        return [self.first_inside()]

    def busy_words(self) -> list[str]:
        """What of this tab's work leaving would cut off, in words."""
        return []

    def last_output(self) -> str:
        """What the last command printed in the selected sandbox; empty where the tab knows of none."""
        return ""

    def title(self) -> str:
        """What the border says when this tab is pinned, besides its name; harmless."""
        return ""

    def say(self, line: str, words: str) -> None:
        """Put words into a `Static`, by its selector; what stands there already is not drawn again."""
        shown = self.query_one(line, Static)
        if str(shown.content) != words:
            shown.update(words, layout=False)

    def keys_moved(self) -> None:
        """The focus went elsewhere: what the tab says of keys may be other ones now."""

    def keys_to(self, action_id: str) -> str:
        """The keys that do an action from where the focus is: `r`, or `tab r` from the list; empty when none does."""
        here = next((one for one in self.main.actions_here() if one.id == action_id), None)
        if here is not None:
            return here.shown_key
        action = self.main.keymap.get(action_id)
        way = self.main.keymap.get("back" if self.has_focus_within else "next_pane")
        return f"{way.shown_key} {action.shown_key}" if action is not None and way is not None else ""

    def words_of(self, sandbox: Sandbox | None, words: Callable[[Sandbox], str]) -> str:
        """`words` of what is selected, or why there are none: nothing is, or it has no name here."""
        if sandbox is None:
            return "no sandbox is selected"
        return words(sandbox) if sandbox.is_tracked else self.nameless_words(sandbox)

    def nameless_words(self, sandbox: Sandbox) -> str:
        """That a machine has no name here, and what gives it one."""
        keys = self.keys_to("adopt")
        return f"{shown_name(sandbox)} has no name here" + f": {keys} adopts it" * bool(keys)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.post_message(WorkFailed(event.worker.error))
