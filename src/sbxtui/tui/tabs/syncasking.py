"""What a person does with a sync: begins, pauses, ends it, takes over, rejects, takes back. Asks where it matters."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from textual import on

from sbxtui.core.paths import at_home, is_folder
from sbxtui.core.text import counted, harmless_line, short_age
from sbxtui.tui.actions import Action
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.synclines import details_of
from sbxtui.tui.tabs.syncwork import SyncWork, UndoFound
from sbxtui.tui.widgets.paths import LocalPaths
from sbxtui.tui.words import shown_name

if TYPE_CHECKING:
    from sbxtui.core.model import Sandbox
    from sbxtui.services.sync.desk import Found, Item, Undoable
    from sbxtui.services.sync.views import SyncView

SYNC, PATCH = "sync", "patch"
_PULL, _LOCAL = "sbx sync pull NAME PATH", "sbx sync resolve NAME PATH --local"
_BOTH, _MERGE = "sbx sync resolve NAME PATH --keep both", "sbx sync resolve NAME PATH --merge"
ACTIONS = (
    Action("sync_start", "n", "sync", "sbx sync NAME DIR --detach", "Keeps it as a folder here is.", 1, SYNC, True),
    Action("sync_diff", "enter,right,l", "diff", "sbx sync diff NAME PATH", "What taking it would change.", 2, SYNC),
    Action("sync_accept", "a", "take over", _PULL, "Takes the sandbox's version here.", 3, SYNC, True),
    Action("sync_reject", "x", "reject", _LOCAL, "Gives the sandbox our version again.", 4, SYNC, True),
    Action("sync_accept_all", "A", "all", "sbx sync pull NAME", "Takes over all but conflicts; asks.", 5, SYNC, True),
    Action("sync_both", "b", "keep both", _BOTH, "Theirs beside ours, as NAME.sandbox.EXT.", 12, SYNC, True),
    Action("sync_merge", "m", "merge", _MERGE, "A text with the changes of both.", 13, SYNC, True),
    Action("sync_undo", "u", "undo", "sbx sync undo NAME", "Takes back what was done last; asks.", 6, SYNC, True),
    Action("sync_pause", "p", "pause", "sbx sync pause NAME / sbx sync resume NAME", "Or goes on.", 7, SYNC, True),
    Action("sync_stop", "d", "stop", "sbx sync stop NAME", "Ends it; touches no file. Asks.", 8, SYNC, True),
    Action("sync_look", "r", "look", "sbx sync pull NAME --dry-run", "Compares; wakes a sleeping one.", 9, SYNC),
    Action("sync_copy", "y", "copy path", "", "Copies its path.", 10, SYNC),
    Action("sync_details", "i", "details", "sbx sync status NAME --json", "All that is known of it.", 11, SYNC),
    Action("patch_accept", "a", "take over", _PULL, "Takes the sandbox's version here.", 1, PATCH, True),
    Action("patch_reject", "x", "reject", _LOCAL, "Gives the sandbox our version again.", 2, PATCH, True),
    Action("patch_both", "b", "keep both", _BOTH, "Theirs beside ours, as NAME.sandbox.EXT.", 4, PATCH, True),
    Action("patch_merge", "m", "merge", _MERGE, "A text with the changes of both.", 5, PATCH, True),
    Action("patch_copy", "y", "copy", "", "What is selected, else the patch.", 3, PATCH),
)
_MODES = (
    ("push", "push", "changes go there; its own are yours to review"),
    ("two-way", "two-way", "what it changes comes back by itself, too"),
    ("mirror", "mirror", "and what only the sandbox has is deleted there"),
)
_SHOWN = 3
_FIRST_DELETES, _LARGE_SEED = "first_contact_deletes", "large_seed"
# What a person may agree to where a sync halted for it.
_CONSENTS = {
    _FIRST_DELETES: ("let it delete", "what only the sandbox has goes to the trash there"),
    _LARGE_SEED: ("send all of it", "else leave things out with a .sbxignore"),
}


class SyncAsking(SyncWork):
    """A tab whose keys act on the selected sandbox's sync.

    Attributes:
        view: How it is; None while it has none, or that is not known.
        found: What there is to decide on, as of the last look.
    """

    view: SyncView | None = None
    found: Found | None = None

    @property
    def selected(self) -> Item | None:
        """What the cursor is on, if it can be decided on."""
        raise NotImplementedError

    @property
    def opened_item(self) -> Item | None:
        """What the diff is of."""
        raise NotImplementedError

    def look(self) -> None:
        """Look at both sides anew."""
        raise NotImplementedError

    # The sync as a whole.

    def do_sync_start(self) -> None:
        """Ask which folder, then which way changes go."""
        sandbox = self.sandbox
        if sandbox is None or not self._may(sandbox):
            return
        if self.view is not None:
            self.main.tell(f"{sandbox.name} is synced with {self.view.root} already: d stops that", "warning")
            return

        def answered(folder: str | None) -> None:
            if folder:
                self._ask_mode(sandbox, str(at_home(folder)))

        screen = AskScreen(
            f"Sync {sandbox.name} with",
            line=lambda folder: shlex.join(["sbx", "sync", sandbox.name, folder, "--detach"]),
            check=_folder_problem,
            hint="a folder here",
            suggester=LocalPaths(),
        )
        self.app.push_screen(screen, answered)

    def _ask_mode(self, sandbox: Sandbox, folder: str) -> None:
        def chosen(mode: str | None) -> None:
            if mode:
                self.start_sync(sandbox, folder, mode)

        self.app.push_screen(ChooseScreen("Which way?", _MODES), chosen)

    def do_sync_pause(self) -> None:
        """Pause what goes on, go on with what does not; out of a halt only after a question."""
        sandbox, view = self.sandbox, self._known()
        if sandbox is None or view is None:
            return
        if view.halts:
            self._ask_out_of_halt(sandbox, view)
        elif view.is_paused or view.state == "not running":
            self.resume_sync(sandbox)
        else:
            self.pause_sync(sandbox)

    def _ask_out_of_halt(self, sandbox: Sandbox, view: SyncView) -> None:
        choices = [("anew", "compare anew", "nothing is deleted; what differs is a conflict")]
        choices += [(code, *words) for code, words in _CONSENTS.items() if code in view.halts]

        def chosen(key: str | None) -> None:
            if key:
                self.resume_sync(sandbox, accepts_deletes=key == _FIRST_DELETES, accepts_large=key == _LARGE_SEED)

        self.app.push_screen(ChooseScreen(f"Halted: {view.reason}", choices), chosen)

    def do_sync_stop(self) -> None:
        """Ask, then end it."""
        sandbox, view = self.sandbox, self._known()
        if sandbox is None or view is None:
            return

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.stop_sync(sandbox)

        loss = "No file is touched. What both sides agreed on is forgotten, and nothing can be taken back afterwards."
        self.app.push_screen(ConfirmScreen(f"Stop syncing {sandbox.name}?", [view.root], loss, "stop"), answered)

    def do_sync_look(self) -> None:
        """Look at both sides."""
        if self._known() is not None:
            self.look()

    def do_sync_details(self) -> None:
        """Show all that is known."""
        if self.sandbox is not None and (view := self._known()) is not None:
            self.main.open_page(f"{shown_name(self.sandbox)} · sync", details_of(view))

    # What differs.

    def do_sync_copy(self) -> None:
        """Copy the path."""
        if (item := self.selected) is not None:
            self.main.copy(item.path.decode("utf-8", "replace"), "the path")

    def do_sync_diff(self) -> None:
        """Show what taking the path over would change."""
        if self.sandbox is not None and (item := self._chosen()) is not None:
            self.show_patch(self.sandbox, item)

    def do_sync_accept(self) -> None:
        """Take the path over."""
        if (item := self._chosen()) is not None:
            self._accept([item])

    def do_sync_reject(self) -> None:
        """Give the sandbox our version again."""
        if (item := self._chosen()) is not None:
            self._reject(item)

    def do_sync_both(self) -> None:
        """Keep both versions of a conflict."""
        if (found := self._dispute(self._chosen())) is not None:
            self.keep_both(*found)

    def do_sync_merge(self) -> None:
        """Merge both versions of a conflict."""
        if (found := self._dispute(self._chosen())) is not None:
            self.merge(*found)

    def do_patch_both(self) -> None:
        """Keep both versions of what the diff is of."""
        if (found := self._dispute(self.opened_item)) is not None:
            self.keep_both(*found)

    def do_patch_merge(self) -> None:
        """Merge both versions of what the diff is of."""
        if (found := self._dispute(self.opened_item)) is not None:
            self.merge(*found)

    def do_patch_accept(self) -> None:
        """Take over what the diff is of."""
        if (item := self.opened_item) is not None:
            self._accept([item])

    def do_patch_reject(self) -> None:
        """Give the sandbox our version of what the diff is of."""
        if (item := self.opened_item) is not None:
            self._reject(item)

    def do_sync_accept_all(self) -> None:
        """Ask, then take over everything that is no conflict."""
        items = [one for one in self.found.items if not one.is_conflict] if self.found is not None else []
        if items:
            self._ask_accept(items)
        else:
            self.main.tell("there is nothing to take over, as far as is known; r looks", "warning")

    def _accept(self, items: Sequence[Item]) -> None:
        """Take over at once what can be taken back; ask where the look spoke against it, or it may run here."""
        if self.found is not None and (self.found.halts or any(item.may_run for item in items)):
            self._ask_accept(items)
        elif self.sandbox is not None and self.found is not None:
            self.take_over(self.sandbox, self.found, items, accepts_deletes=False)

    def _ask_accept(self, items: Sequence[Item]) -> None:
        sandbox, found = self.sandbox, self.found
        if sandbox is None or found is None:
            return

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.take_over(sandbox, found, items, accepts_deletes=bool(found.halts))

        things = [counted(len(items), "path") if len(items) > 1 else _path(items[0])]
        if running := [item for item in items if item.may_run]:
            more = f" and {len(running) - 1} more" if len(running) > 1 else ""
            things.append(f"this machine may run {_path(running[0])}{more}")
        if found.halts:
            things.append("; ".join(found.halts))
        loss = "What it replaces here goes to the trash: u takes it back."
        self.app.push_screen(ConfirmScreen(f"Take over from {sandbox.name}?", things, loss, "take over"), answered)

    def _reject(self, item: Item) -> None:
        if self.sandbox is not None:
            self.give_back(self.sandbox, [item])

    # Taking back.

    def do_sync_undo(self) -> None:
        """Look what can be taken back, then ask."""
        if self.sandbox is not None and self._known() is not None:
            self.find_undoable(self.sandbox)

    @on(UndoFound)
    def undo_found(self, message: UndoFound) -> None:
        """Ask which, where there are two."""
        if not self.is_about(message.key):
            return
        if len(message.choices) < 2:
            self._confirm_undo(message.choices[0] if message.choices else None)
            return
        by_key = {str(one.number): one for one in message.choices}

        def chosen(key: str | None) -> None:
            if key:
                self._confirm_undo(by_key[key])

        choices = [(key, *_undo_words(one)) for key, one in by_key.items()]
        self.app.push_screen(ChooseScreen("Take back", choices), chosen)

    def _confirm_undo(self, what: Undoable | None) -> None:
        sandbox = self.sandbox
        if what is None or sandbox is None:
            self.main.tell("there is nothing to take back", "warning")
            return

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.take_back(sandbox, what)

        words, more = _undo_words(what)
        loss = "Where both sides differ afterwards, they are in conflict." if what.is_pushed else ""
        self.app.push_screen(ConfirmScreen(f"Take back: {words}?", [more], loss, "take back"), answered)

    # What is common.

    def _may(self, sandbox: Sandbox) -> bool:
        if not sandbox.is_tracked:
            self.main.tell(self.nameless_words(sandbox), "warning")
        return sandbox.is_tracked

    def _known(self) -> SyncView | None:
        if self.view is None:
            self.main.tell("it is not synced: n begins that" if self.sandbox else "no sandbox is selected", "warning")
        return self.view

    def _dispute(self, item: Item | None) -> tuple[Sandbox, Item] | None:
        """A conflict to settle, and in which sandbox; says so where only one side changed."""
        if item is None or self.sandbox is None:
            return None
        if not item.is_conflict:
            self.main.tell("only the sandbox changed it: a takes it over, x gives ours again", "warning")
            return None
        return self.sandbox, item

    def _chosen(self) -> Item | None:
        """What the cursor is on; says why when that cannot be decided on."""
        if (item := self.selected) is None:
            self.main.tell("there is nothing to decide on here; r looks at both sides", "warning")
        return item


def _folder_problem(text: str) -> str:
    if not text:
        return "nothing yet"
    return "" if is_folder(at_home(text)) else "there is no such folder here"


def _path(item: Item) -> str:
    return harmless_line(item.path.decode("utf-8", "replace"), limit=200)


def _undo_words(what: Undoable) -> tuple[str, str]:
    """What it was and when, and its first paths."""
    age = short_age(timedelta(seconds=time.time() - what.at_s))
    paths = ", ".join(harmless_line(path, limit=60) for path in what.paths[:_SHOWN])
    more = f" and {len(what.paths) - _SHOWN} more" if len(what.paths) > _SHOWN else ""
    left = ", what was left over" if what.is_left_over else ""
    return f"{what.word} of {age} ago{left}", f"{paths}{more}"
