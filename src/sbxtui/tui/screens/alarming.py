"""Trouble on the main screen: a toast, kept under `!`, and a word to the terminal for a person who looks elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from textual import on
from textual.message import Message
from textual.screen import Screen

from sbxtui.core.errors import SbxError
from sbxtui.core.life import CAP
from sbxtui.core.text import harmless_line
from sbxtui.core.troubles import ASKS, is_good_news
from sbxtui.tui.screens.moving import Moving
from sbxtui.tui.working import worker

# What terminals show as a notification of the system, or ring for.
_TELLERS = {"osc9": "\x1b]9;{words}\x07", "osc777": "\x1b]777;notify;sbx;{words}\x07", "bell": "\x07"}


class Alarm(Message):
    """Something is wrong somewhere, in harmless words."""

    def __init__(self, words: str, *, severity: str = "warning", is_cap: bool = False, is_call: bool = False) -> None:
        super().__init__()
        self.words = words
        self.severity = severity
        self.is_cap = is_cap
        self.is_call = is_call


class Alarming(Moving):
    """Hears of trouble as the store does."""

    _agents: Screen[None] | None = None

    @worker(exclusive=True, group="alarms")
    async def follow_alarms(self) -> None:
        """Tell of trouble as it comes, in whichever sandbox."""
        try:
            alarms = await asyncio.to_thread(lambda: self.services.alarms)
            async with alarms.looking(), aclosing(alarms.follow()) as troubles:
                async for event, words in troubles:
                    severity = "information" if is_good_news(event) else "warning"
                    is_cap, is_call = event.kind == CAP, event.kind == ASKS
                    self.post_message(Alarm(words, severity=severity, is_cap=is_cap, is_call=is_call))
        except SbxError as exc:
            self.post_message(Alarm(f"trouble is not heard of any more: {exc.message}"))

    def do_clients(self) -> None:
        """Show the agents that are connected."""
        # Who never looks does not wait for what it needs.
        from sbxtui.services.clients import ClientDesk
        from sbxtui.tui.screens.clients import ClientsScreen

        if not self.is_open:
            self.tell("the store is not open yet", "warning")
            return
        desk = ClientDesk(self.settings.home, self.services.clients, self.services.actor)
        self._agents = ClientsScreen(desk, is_read_only=self.settings.ui.read_only)
        self.app.push_screen(self._agents)

    @on(Alarm)
    def alarmed(self, message: Alarm) -> None:
        """Show it, and have the terminal say so."""
        save = self.keymap.get("save_work")
        offer = f"; {save.shown_key} saves them here" if message.is_cap and save is not None else ""
        # The list of agents shows each call that waits. Told after it, one would long have its answer.
        if not (message.is_call and self.app.screen is self._agents):
            self.tell(message.words + offer, message.severity)
        template = _TELLERS.get(self.settings.watch.notify, "")
        driver = self.app._driver
        if template and driver is not None:
            # `;` would end the words.
            driver.write(template.format(words=harmless_line(message.words, limit=160).replace(";", ",")))
