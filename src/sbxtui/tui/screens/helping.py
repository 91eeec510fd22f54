"""Help, palette and keys, all from the one registry of actions; copying, contexts and the way to the shell."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from textual.binding import BindingsMap

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Context
from sbxtui.tui import clock
from sbxtui.tui.actions import Action
from sbxtui.tui.keymap import Keymap
from sbxtui.tui.messages import ContextAsked, ContextsSeen
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.screens.living import Living
from sbxtui.tui.widgets.bars import context_words
from sbxtui.tui.words import shown_name, why_text
from sbxtui.tui.working import worker

if TYPE_CHECKING:
    from sbxtui.tui.app import Dashboard


class Helping(Living):
    """A screen whose keys are those of a keymap."""

    def __init__(self, first_look: FirstLook, keymap: Keymap) -> None:
        super().__init__(first_look)
        self.take_keymap(keymap)

    def take_keymap(self, keymap: Keymap) -> None:
        """Let keys do from now on what a keymap says."""
        self.keymap = keymap
        self._bindings = BindingsMap(keymap.bindings())

    @property
    def dashboard(self) -> Dashboard:
        """The application."""
        return cast("Dashboard", self.app)

    def actions_here(self) -> list[Action]:
        """The actions whose keys work where the focus is."""
        raise NotImplementedError

    def scopes(self) -> Sequence[str]:
        """Where the focus is, nearest first."""
        raise NotImplementedError

    def do_help(self) -> None:
        """Show every key, those that work here first."""
        from sbxtui.tui.helptext import help_text

        self.open_page("Help", help_text(self.keymap, self.actions_here()))

    def do_palette(self) -> None:
        """Open the list of all actions."""
        self.app.action_command_palette()

    def do_copy(self) -> None:
        """Copy what is selected; else ask what of the sandbox to copy."""
        if selected := self.get_selected_text():
            self.copy(selected, "the selection")
            return
        choices = self._copy_choices()
        if not choices:
            self.tell("there is nothing to copy", "warning")
            return
        from sbxtui.tui.screens.choose import ChooseScreen

        texts = {key: text for key, _, text in choices}

        def chosen(key: str | None) -> None:
            if key:
                self.copy(texts[key], f"the {key}")

        self.app.push_screen(ChooseScreen("Copy", choices), chosen)

    def _copy_choices(self) -> list[tuple[str, str, str]]:
        one = self.fleet.selected
        if one is None:
            return []
        failure = self.fleet.failure_of(one)
        reason = failure.error.message if failure else why_text(one, self.fleet.last_seen_of(one), clock.now())
        found = [
            ("name", shown_name(one) if one.is_tracked else ""),
            ("id", str(one.id)),
            ("endpoint", f"https://{one.endpoint}" if one.endpoint else ""),
            ("image", one.image_arn),
            ("shell line", f"sbx exec {one.name} -- " if one.is_tracked else ""),
            ("reason", reason),
            ("labels", " ".join(f"{key}={value}" for key, value in one.labels.items())),
            ("output", self.last_output()),
        ]
        return [(key, key, text) for key, text in found if text]

    def last_output(self) -> str:
        """What the last command printed in the selected sandbox; empty when there is nothing."""
        return ""

    def do_interrupt(self) -> None:
        """Ctrl-C copies what is selected; leaving by it would lose work."""
        if selected := self.get_selected_text():
            self.copy(selected, "the selection")
            return
        self.tell("q quits · ctrl+c stops a command while its line has the focus")

    def do_suspend(self) -> None:
        """Stop the whole program until the shell brings it back; the terminal is given back meanwhile."""
        if self.dashboard.can_suspend:
            self.app.action_suspend_process()
        else:
            self.tell("this terminal cannot suspend programs", "warning")

    def do_own_shell(self) -> None:
        """Lend the whole terminal to a shell of one's own; the dashboard goes on unseen."""
        selected = self.fleet.selected
        if selected is None or not selected.is_tracked:
            self.tell("a shell needs a sandbox with a name", "warning")
        else:
            self.lend(["shell", selected.name])

    def do_context(self) -> None:
        """Ask which context to look at."""
        if self.first_look.services is None:
            self.tell("the store is not open yet", "warning")
            return
        self.list_contexts()

    @worker(exclusive=True, group="contexts")
    async def list_contexts(self) -> None:
        """Read the known contexts."""
        try:
            contexts = await asyncio.to_thread(lambda: self.services.contexts.list())
        except SbxError as exc:
            self.failed("contexts", exc)
            return
        self.post_message(ContextsSeen(contexts))

    def choose_context(self, contexts: Sequence[Context]) -> None:
        """Let the person choose; another one opens in place of this screen."""
        from sbxtui.tui.screens.choose import ChooseScreen

        current = self.fleet.context.name if self.fleet.context is not None else ""
        choices = [(one.name, context_words(one), _context_kind(one)) for one in contexts]

        def chosen(name: str | None) -> None:
            if not name or name == current:
                return
            if works := self.busy_words():
                self.tell(f"not while this goes on here: {works[0]}", "warning")
                return
            self.post_message(ContextAsked(name))

        self.app.push_screen(ChooseScreen("Look at which context?", choices, current), chosen)


def _context_kind(context: Context) -> str:
    words = context.isolation_words or "this machine" if not context.endpoint_url else context.endpoint_url
    return f"{context.kind.value}, {words}"
