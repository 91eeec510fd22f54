"""The agents that are connected over MCP: what each does, and a hand on them."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import aclosing
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from sbxtui.core.clients import Allowed, Answer, Approval
from sbxtui.core.errors import SbxError
from sbxtui.core.text import harmless_line
from sbxtui.services.clients import ClientDesk, ClientsView
from sbxtui.tui import clock
from sbxtui.tui.clientlines import ClientLine, client_row, head_of, lines_of, words_of
from sbxtui.tui.enduring import Enduring
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.widgets.rows import RowList
from sbxtui.tui.working import worker

_CHANGES = ("allow", "answer", "cut")
_NONE = "no agent is connected: `sbx mcp config --client NAME` tells one of this server"


class ClientsSeen(Message):
    """How the clients are, or why that cannot be told."""

    def __init__(self, view: ClientsView, error: SbxError | None = None) -> None:
        super().__init__()
        self.view = view
        self.error = error


class ClientsScreen(Enduring, ModalScreen[None]):
    """A list of clients and of their calls that wait. What is done acts on the line under the cursor.

    Looks for as long as it is open. `is_read_only` leaves out what changes anything.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,M", "leave", "close"),
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("a", "answer(True)", "approve"),
        Binding("x", "answer(False)", "deny"),
        Binding("p", "allow('paused')", "pause"),
        Binding("s", "allow('asking')", "ask"),
        Binding("r", "allow('running')", "resume"),
        Binding("d", "cut", "cut off"),
    ]

    def __init__(self, desk: ClientDesk, *, is_read_only: bool) -> None:
        super().__init__()
        self._desk = desk
        self._is_read_only = is_read_only
        self._problem = ""
        self.lines: list[ClientLine] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="clients", classes="dialog") as dialog:
            dialog.border_title = "Agents over MCP"
            dialog.border_subtitle = self._keys()
            yield Static("", id="clients-head", classes="label", markup=False)
            yield RowList(("clients",), id="client-rows")
            yield Static("", id="clients-words", markup=False)

    def on_mount(self) -> None:
        self.query_one(RowList).focus()
        self.follow()
        self.set_interval(1.0, self.draw)

    def on_resize(self) -> None:
        self.draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (self._is_read_only and action in _CHANGES)

    @worker(exclusive=True, group="clients")
    async def follow(self) -> None:
        """Tell how they are for as long as somebody looks."""
        try:
            async with aclosing(self._desk.follow()) as views:
                async for view in views:
                    self.post_message(ClientsSeen(view))
        except SbxError as exc:
            self.post_message(ClientsSeen(ClientsView(), exc))

    @worker(group="clients-change")
    async def change(self, work: Awaitable[None]) -> None:
        """Do something with one; what goes wrong is said below the list."""
        try:
            await work
            self._problem = ""
        except SbxError as exc:
            self._problem = harmless_line(exc.message)
        self.draw()

    @on(ClientsSeen)
    def seen(self, message: ClientsSeen) -> None:
        """Show them."""
        self.lines = lines_of(message.view)
        if message.error is not None:
            self._problem = harmless_line(message.error.message)
        self.draw()

    @on(RowList.Moved)
    def draw(self) -> None:
        """Draw the list as of now, and all that is known of the line under the cursor."""
        rows = self.query_one(RowList)
        width = rows.size.width
        rows.show([client_row(line, clock.now(), width) for line in self.lines])
        self.query_one("#clients-head", Static).update(head_of(width) if self.lines else "")
        line = self.selected
        words = self._problem or (words_of(line, clock.now()) if line is not None else _NONE)
        self.query_one("#clients-words", Static).update(words)

    @property
    def selected(self) -> ClientLine | None:
        """The line under the cursor."""
        row = self.query_one(RowList).selected
        return next((line for line in self.lines if row is not None and line.key == row.key), None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_move(self, by: int) -> None:
        rows = self.query_one(RowList)
        rows.move_to(rows.cursor + by)

    def action_allow(self, allowed: str) -> None:
        if (line := self.selected) is not None:
            self.change(self._desk.allow(line.client, Allowed(allowed)))

    def action_answer(self, is_yes: bool) -> None:
        if (asked := self._asked()) is not None:
            self.change(self._desk.answer(asked, Answer.APPROVED if is_yes else Answer.DENIED))

    def action_cut(self) -> None:
        if (line := self.selected) is None:
            return
        client = line.client

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.change(self._desk.allow(client, Allowed.ENDED))

        consequence = "Ends what it does, and its server; sandboxes and sessions stay."
        self.app.push_screen(ConfirmScreen("Cut off?", [client.actor], consequence, "cut off"), answered)

    def _asked(self) -> Approval | None:
        """The call under the cursor; on a client the one that has waited longest."""
        line = self.selected
        if line is None:
            return None
        return line.asks or next((one.asks for one in self.lines if one.client == line.client and one.asks), None)

    def _keys(self) -> str:
        shown = [one for one in self.BINDINGS if isinstance(one, Binding) and one.show]
        shown = [one for one in shown if self._is_read_only is False or one.action == "leave"]
        told = [f"{'esc' if one.action == 'leave' else one.key} {one.description}" for one in shown]
        return " · ".join([*told[1:], told[0]])
