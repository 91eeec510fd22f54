"""Trouble on the main screen: a toast, kept under `!`, and a word to the terminal for a person who looks elsewhere."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from textual import on, work
from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.text import harmless_line
from sbxtui.tui.screens.moving import Moving

# What terminals show as a notification of the system, or ring for.
_TELLERS = {"osc9": "\x1b]9;{words}\x07", "osc777": "\x1b]777;notify;sbx;{words}\x07", "bell": "\x07"}


class Alarm(Message):
    """Something is wrong somewhere, in harmless words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class Alarming(Moving):
    """Hears of trouble as the store does."""

    @work(exclusive=True, group="alarms", exit_on_error=False)
    async def follow_alarms(self) -> None:
        """Tell of trouble as it comes, in whichever sandbox."""
        try:
            alarms = await asyncio.to_thread(lambda: self.services.alarms)
            async with aclosing(alarms.follow()) as troubles:
                async for _event, words in troubles:
                    self.post_message(Alarm(words))
        except SbxError as exc:
            self.post_message(Alarm(f"trouble is not heard of any more: {exc.message}"))

    @on(Alarm)
    def alarmed(self, message: Alarm) -> None:
        """Show it, and have the terminal say so."""
        self.tell(message.words, "warning")
        template = _TELLERS.get(self.settings.watch.notify, "")
        driver = self.app._driver
        if template and driver is not None:
            # `;` would end the words.
            driver.write(template.format(words=harmless_line(message.words, limit=160).replace(";", ",")))
