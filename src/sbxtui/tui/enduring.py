"""A message may come when the widgets it is about are not there, yet or any more: that ends nothing but itself.

Workers end when they will, dialogs are told more while they are made, and on the way out widgets go one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.css.query import NoMatches
from textual.message import Message
from textual.message_pump import MessagePump

if TYPE_CHECKING:
    from sbxtui.tui.app import Dashboard


class Enduring(MessagePump):
    """Whoever handles messages and looks for widgets. Textual would end the whole application for one it misses."""

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except NoMatches as error:
            cast("Dashboard", self.app).missed(error)
