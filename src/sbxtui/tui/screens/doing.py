"""What each action does: asks where something could be lost, then hands over to the background.

Dialogs are imported where they are opened: the first frame would wait for them.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from sbxtui.core.errors import UsageError
from sbxtui.core.isolation import NO_SHORTFALL
from sbxtui.core.model import Sandbox, SandboxRecord
from sbxtui.core.names import check_name
from sbxtui.core.text import harmless_line
from sbxtui.tui import clock
from sbxtui.tui.fleet import untracked_ids
from sbxtui.tui.messages import LeaveAsked
from sbxtui.tui.notes import Note
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.operations import can_resume, can_suspend
from sbxtui.tui.screens.telling import Telling
from sbxtui.tui.tabs.base import Tab
from sbxtui.tui.themes import HIGHLIGHTING, REVERSING_THEMES, next_theme
from sbxtui.tui.widgets.bars import StatusBar
from sbxtui.tui.words import error_text, names_text, shown_name, state_text

if TYPE_CHECKING:
    from sbxtui.tui.screens.create import Wish


class Doing(Telling):
    """The actions that change something or open a page; moving about is the main screen's."""

    def __init__(self, first_look: FirstLook) -> None:
        super().__init__(first_look)
        self.isolation = ""
        self.shortfall = NO_SHORTFALL
        self._numbers = count(1)

    @property
    def is_open(self) -> bool:
        """Whether the store is open, so that anything can be done."""
        return self.fleet.context is not None

    def do_create(self) -> None:
        """Ask for a new sandbox."""
        if self.fleet.context is None:
            self.tell("the store is not open yet", "warning")
            return
        from sbxtui.tui.screens.create import CreateScreen, Ground

        settings = self.services.settings
        ground = Ground(
            self.fleet.context,
            self.isolation,
            image=settings.image_arn,
            memory_mib=settings.memory_mib,
            egress_connector=settings.egress_connector,
        )
        self.app.push_screen(CreateScreen(ground), self._create_wished)

    def do_toggle_pause(self) -> None:
        """Suspend what runs and resume what is suspended, of the marked or the selected."""
        targets = self.fleet.targets()
        if not targets:
            self.tell("no sandbox is selected: nothing to pause", "warning")
        pausing = [one for one in targets if can_suspend(one)]
        waking = [one for one in targets if can_resume(one)]
        for one in targets:
            if one not in pausing and one not in waking:
                why = "has no name here: adopt it first" if not one.is_tracked else f"is {state_text(one.state)}"
                self.tell(f"{shown_name(one)} {why}", "warning")
        if pausing:
            self.start_suspend(self._begin("suspending", pausing), pausing)
        if waking:
            self.start_resume(self._begin("resuming", waking), waking)
        self._unmark()

    def do_remove(self) -> None:
        """Ask, then end the marked or the selected for good."""
        targets = self.fleet.targets()
        if not targets:
            self.tell("no sandbox is selected: nothing to remove", "warning")
        if strangers := untracked_ids(targets):
            self.tell(f"{names_text(strangers)}: no name here, so not removed; `sbx adopt ID NAME` first", "warning")
        owned = [one for one in targets if one.is_tracked]
        if not owned:
            return
        from sbxtui.tui.screens.confirm import ConfirmScreen

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.start_remove(self._begin("removing", owned), owned)
                self._unmark()

        what = f"`{owned[0].name}`" if len(owned) == 1 else f"{len(owned)} sandboxes"
        loss = _loss_words(owned) + f" Left alone, having no name here: {names_text(strangers)}." * bool(strangers)
        things = [f"{shown_name(one):<24} {state_text(one.state)}" for one in owned]
        self.app.push_screen(ConfirmScreen(f"Remove {what}?", things, loss, "remove", owned), answered)
        self.look_for_losses(owned)

    def do_refresh(self) -> None:
        """Ask the control plane now; after a failed opening, try that again."""
        if self.is_open:
            self.services.watch.look_now()
        else:
            self.open_again()

    def do_record(self) -> None:
        """Show the control plane's record of the selected sandbox."""
        selected = self.fleet.selected
        if selected is None or not selected.id:
            self.tell("there is no record to show yet", "warning")
            return
        self.look_up(selected.id, is_asked=True)

    def do_explain(self) -> None:
        """Why the selected one is as it is, else why nothing is known, else what failed last; with its remedy. Where
        nothing did: why new ones are not isolated more strongly.
        """
        selected = self.fleet.selected
        failure = self.fleet.failure_of(selected) if selected is not None else None
        if failure is not None and selected is not None:
            self.open_page(f"{shown_name(selected)}: {failure.doing} failed", error_text(failure.error))
        elif self.fleet.error is not None:
            self.open_page("Why states are not known", error_text(self.fleet.error))
        elif self.last_error is not None:
            at, doing, error = self.last_error
            self.open_page(f"{doing}, {at.astimezone():%H:%M:%S}", error_text(error))
        elif self.shortfall.words:
            self.open_page("Why new sandboxes are not isolated more strongly", self.shortfall.words)
        else:
            self.tell("nothing failed so far")

    def do_rename(self) -> None:
        """Ask for another name."""
        selected = self.fleet.selected
        if selected is None or not selected.is_tracked:
            self.tell("only what has a name here can be renamed: a adopts it", "warning")
            return
        from sbxtui.tui.screens.ask import AskScreen

        def answered(name: str | None) -> None:
            if name:
                self.start_rename(self._begin("renaming", [selected]), selected, name)

        line = f"sbx rename {selected.name} {{}}"
        self.app.push_screen(
            AskScreen(f"Rename {selected.name}", selected.name, line=line.format, check=name_problem), answered
        )

    def do_adopt(self) -> None:
        """Ask which name a machine without one gets."""
        selected = self.fleet.selected
        if selected is None or selected.is_tracked or not selected.id:
            self.tell("it has a name already; R renames it" if selected else "there is nothing to adopt", "warning")
            return
        from sbxtui.tui.screens.ask import AskScreen

        def answered(name: str | None) -> None:
            if name is not None:
                self.start_adopt(self._begin("adopting", [selected]), selected, name)

        line = f"sbx adopt {selected.id} {{}}"
        self.app.push_screen(AskScreen("Adopt it as", line=line.format, check=name_problem, hint="a name"), answered)

    def do_theme(self) -> None:
        """Switch to the next theme, and keep to it unless something else says which one."""
        self.app.theme = next_theme(self.app.theme)
        self.set_class(self.app.theme in REVERSING_THEMES, "-reversing")
        for tab in self.query(Tab):
            tab.rethemed()
        name = self.app.theme.removeprefix("sbx-")
        if self.app.no_color:
            self.tell(f"theme {name}, until you leave: NO_COLOR asks for mono")
        elif self.settings.ui.theme:
            self.tell(f"theme {name}, until you leave: config.toml says {self.settings.ui.theme}")
        else:
            self.tell(f"theme {name}")
            self.keep_theme(name)

    def do_palette(self) -> None:
        """Open the list of all actions."""
        self.app.action_command_palette()

    def do_quit(self) -> None:
        """Leave; asks when something would be cut off."""
        works = self.busy_words()
        if not works:
            self.post_message(LeaveAsked())
            return
        from sbxtui.tui.screens.confirm import ConfirmScreen

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.tell("stopping what still runs …")
                self.post_message(LeaveAsked())

        loss = "Leaving stops these: a launch is taken back, a running command ends."
        self.app.push_screen(ConfirmScreen("Quit now?", works[:3], loss, "quit"), answered)

    def busy_words(self) -> list[str]:
        """What leaving would cut off, in words."""
        return self.query_one(StatusBar).works

    def end_work(self, work: str, words: str, tone: str) -> None:
        """A piece of work ended with `words`: told for a while, and kept."""
        self.query_one(StatusBar).end(work, words, tone)
        self.notes.add(Note(clock.now(), harmless_line(words), "warning" if tone == "warn" else "information"))

    def highlighting(self) -> str:
        """The pygments style that is readable on the theme; empty for none."""
        return HIGHLIGHTING.get(self.app.theme, "")

    def do_back(self) -> None:
        """Up one level."""
        raise NotImplementedError

    def do_next_pane(self) -> None:
        """To the next pane."""
        raise NotImplementedError

    def show_record(self, sandbox: Sandbox, record: SandboxRecord) -> None:
        """Open the page with a record as JSON."""
        import json

        from sbxtui.core.documents import inspected_json

        document = json.dumps(inspected_json(sandbox, record), indent=2, ensure_ascii=False)
        self.open_page(f"{shown_name(sandbox)} · record", document)

    def _create_wished(self, wish: Wish | None) -> None:
        if wish is None:
            return
        work = f"create-{next(self._numbers)}"
        self.query_one(StatusBar).begin(work, f"creating {wish.name or 'a sandbox'}")
        self.start_create(work, wish)

    def _begin(self, doing: str, targets: list[Sandbox]) -> str:
        work = f"{doing}-{next(self._numbers)}"
        self.query_one(StatusBar).begin(work, f"{doing} {names_text([one.name for one in targets])}")
        return work

    def _unmark(self) -> None:
        self.fleet.marks.clear()
        self.query_one(StatusBar).set_marks(0)


def name_problem(name: str) -> str:
    """Why a name cannot be one; empty when it can."""
    try:
        check_name(name)
    except UsageError as exc:
        return f"{exc.message}: {exc.hint}"
    return ""


def _loss_words(targets: list[Sandbox]) -> str:
    if all(one.state.is_gone for one in targets):
        return "Already ended: only the name is forgotten."
    return "Memory, disk and running commands are lost; nothing brings them back."
