"""The ports tab: what listens in the sandbox, what of it is forwarded to this machine, and how that is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from sbxtui.core.errors import UsageError
from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.ports import parse_mapping
from sbxtui.core.text import harmless_line
from sbxtui.tui import clock
from sbxtui.tui.actions import SANDBOXES, Action
from sbxtui.tui.portlines import PortLine, details_of, lines_of, port_row, state_line, traffic_of
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.tabs.portwork import ForwardsSeen, PortDone, PortsBegan, PortsFound, PortWork
from sbxtui.tui.widgets.rows import RowList
from sbxtui.tui.words import shown_name, state_text

if TYPE_CHECKING:
    from sbxtui.services.forward.desk import ForwardView
    from sbxtui.services.ports import OpenPort

PORTS = "ports"
_TOLD_AT_ONCE = 3
_FORWARD, _ADD = "sbx forward NAME PORT --any-port --detach", "sbx forward NAME LOCAL:REMOTE --detach"
_STOP = "sbx forward stop NAME PORT"
ACTIONS = (
    Action("port_forward", "f,enter", "forward", _FORWARD, "Opens it on this machine, at once.", 1, PORTS, True),
    Action("port_add", "n", "other port", _ADD, "Asks which, and where it shall be here.", 2, PORTS, True),
    Action("port_open", "o", "open", "", "Its page in your browser; forwards it first.", 3, PORTS),
    Action("port_copy", "y", "copy URL", "", "Copies where it is here.", 4, PORTS),
    Action("port_stop", "d", "stop", _STOP, "Listens no more; its connections end.", 5, PORTS, True),
    Action("port_look", "r", "look", "sbx ports NAME", "Asks the sandbox; wakes a sleeping one.", 6, PORTS),
    Action("port_details", "i", "details", "sbx forward ls --json", "All that is known of it.", 7, PORTS),
)


class PortsTab(PortWork):
    """Ports of the selected sandbox. Watching forwards sends it nothing; looking inside asks it."""

    SCOPES: ClassVar[tuple[str, ...]] = (PORTS, SANDBOXES)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.found: Sequence[OpenPort] | None = None
        self.forwards: Sequence[ForwardView] = ()
        self._looked_at: datetime | None = None
        self._problem = ""
        self._is_looking = False
        self._opens = 0

    def compose(self) -> ComposeResult:
        yield Static("", id="ports-state", markup=False)
        yield RowList((PORTS, SANDBOXES), id="portlist")
        yield Static("", id="ports-status", markup=False)

    # Which sandbox.

    def opened(self) -> None:
        """Another store may be open now."""
        super().opened()
        self.follow_news()
        self.watch_ports()

    def turned(self) -> None:
        """Nothing is known of another one's ports yet."""
        for group in ("ports", "forwards"):
            self.workers.cancel_group(self, group)
        self.found, self.forwards, self._looked_at = None, (), None
        self._problem, self._is_looking, self._opens = "", False, 0
        self.draw()

    def begin_watch(self, *, is_asked: bool) -> None:
        """Watch the forwards, which costs the sandbox nothing; look inside only where the person wants to know."""
        if self.sandbox is None or not self.is_watchable:
            self.end_watch()
            return
        self.watch_forwards(self.sandbox)
        if is_asked and self.sandbox.state is SandboxState.RUNNING and not self._is_looking:
            self.look()

    @property
    def lines(self) -> list[PortLine]:
        """What is shown."""
        return lines_of(self.found, self.forwards)

    @property
    def selected(self) -> PortLine | None:
        """What the cursor is on."""
        row = self.query_one(RowList).selected
        return next((line for line in self.lines if row is not None and line.key == row.key), None)

    def first_inside(self) -> RowList:
        """The list."""
        return self.query_one(RowList)

    def title(self) -> str:
        """How many are forwarded."""
        return f"{len(self.forwards)} forwarded" if self.forwards else ""

    def tick(self) -> None:
        """What is shown gets older."""
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        self.draw()

    # What workers tell.

    @on(ForwardsSeen)
    def forwards_seen(self, message: ForwardsSeen) -> None:
        """Show them."""
        if self.is_about(message.key):
            self.forwards = message.forwards
            if message.error is not None:
                self._problem = harmless_line(message.error.message)
            self._open_awaited()
            self.draw()

    @on(PortsFound)
    def ports_found(self, message: PortsFound) -> None:
        """Show what listens; what is new is told."""
        if not self.is_about(message.key):
            return
        self._is_looking = False
        self._problem = ""
        if message.error is not None:
            self._problem = harmless_line(message.error.message)
        else:
            self.found, self._looked_at = message.found, clock.now()
        self.draw()

    @on(PortsBegan)
    def ports_began(self, message: PortsBegan) -> None:
        """Tell what is new inside, unless the person is looking at it."""
        for name in {event.subject for event in message.events}:
            ports = [event.data for event in message.events if event.subject == name]
            is_here = self.sandbox is not None and self.sandbox.name == name
            if is_here and self.is_in_view:
                continue
            told = ", ".join(f"{one.get('port')} ({one.get('process') or '?'})" for one in ports[:_TOLD_AT_ONCE])
            self.main.tell(f"new inside {name}: port {harmless_line(told)}")

    @on(PortDone)
    def done(self, message: PortDone) -> None:
        """Say what became of it."""
        if message.error is not None:
            self._opens = 0
            self.main.end_work(message.doing, f"{message.doing} failed: {message.error.message}", "warn")
            self.main.failed(message.doing, message.error)
        else:
            self.main.end_work(message.doing, message.words, "good")

    @on(RowList.Opened)
    def row_opened(self) -> None:
        """A second click forwards it."""
        self.do_port_forward()

    # What the person does.

    def look(self) -> None:
        """Ask the sandbox."""
        if self.sandbox is not None:
            self._is_looking = True
            self.look_inside(self.sandbox)
            self.draw()

    def do_port_look(self) -> None:
        """Ask the sandbox."""
        if self._may():
            self.look()

    def do_port_forward(self) -> None:
        """Forward the port under the cursor; what is forwarded already is told."""
        line = self._chosen()
        if line is None or self.sandbox is None:
            return
        if line.forward is not None:
            self.main.tell(f"port {line.port} is at {line.forward.url} already")
        else:
            self.start_forward(self.sandbox, line.port)

    def do_port_add(self) -> None:
        """Ask which port to forward, and to which."""
        sandbox = self.sandbox
        if sandbox is None or not self._may():
            return

        def answered(text: str | None) -> None:
            if text:
                pair = parse_mapping(text)
                self.start_forward(sandbox, pair.remote_port, pair.local_port)

        screen = AskScreen(
            f"Forward a port of {sandbox.name}",
            line=lambda text: shlex.join(["sbx", "forward", sandbox.name, text, "--detach"]),
            check=_pair_problem,
            hint="8000, or LOCAL:REMOTE",
        )
        self.app.push_screen(screen, answered)

    def do_port_open(self) -> None:
        """Open its page; a port that is not here yet is forwarded first."""
        line = self._chosen()
        if line is None or self.sandbox is None:
            return
        if line.forward is not None:
            self._open(line.forward.url)
        elif self.is_read_only:
            self.main.tell("it is not forwarded, and nothing may be changed", "warning")
        else:
            self._opens = line.port
            self.start_forward(self.sandbox, line.port)

    def do_port_copy(self) -> None:
        """Copy its URL here."""
        if (forward := self._forwarded()) is not None:
            self.main.copy(forward.url, "the URL")

    def do_port_stop(self) -> None:
        """End its forward; nothing is lost that one key does not bring back."""
        if self.sandbox is not None and (forward := self._forwarded()) is not None:
            self.stop_forward(self.sandbox, forward.local_port)

    def do_port_details(self) -> None:
        """Show all that is known."""
        if self.sandbox is not None and (line := self._chosen()) is not None:
            self.main.open_page(f"{shown_name(self.sandbox)} · port {line.port}", details_of(line))

    def _open(self, url: str) -> None:
        self.open_page(url)
        self.main.tell(f"asked your browser for {url}; y copies it")

    def _open_awaited(self) -> None:
        """Open what was forwarded to be opened, as soon as it is listened for."""
        found = next((one for one in self.forwards if one.remote_port == self._opens), None)
        if found is not None:
            self._opens = 0
            self._open(found.url)

    def _may(self) -> bool:
        if why_not := self.words_of(self.sandbox, lambda _: ""):
            self.main.tell(why_not, "warning")
        return not why_not

    def _chosen(self) -> PortLine | None:
        if (line := self.selected) is None and self._may():
            self.main.tell("there is no port here; n forwards any, r looks inside", "warning")
        return line

    def _forwarded(self) -> ForwardView | None:
        line = self._chosen()
        if line is not None and line.forward is None:
            self.main.tell(f"port {line.port} is not forwarded: f does that", "warning")
        return line.forward if line is not None else None

    # Drawing.

    def keys_moved(self) -> None:
        """The line below says keys."""
        self._say()

    def draw(self) -> None:
        """Draw everything as it is now."""
        rows, now = self.query_one(RowList), clock.now()
        width = max(20, rows.size.width - 2)
        is_looked = self.found is not None
        rows.show([port_row(line, now, width, is_looked=is_looked) for line in self.lines])
        state = self.query_one("#ports-state", Static)
        content = Content("")
        if self.sandbox is not None and self.sandbox.is_tracked:
            words, tone = state_line(self.forwards, self._looked_at, now)
            content = Content.styled(words, f"$sbx-{tone}" if tone else "")
        if content != state.content:
            state.update(content)
        self._say()

    def _say(self) -> None:
        self.say("#ports-status", harmless_line(self.words_of(self.sandbox, self._status)))

    def _status(self, sandbox: Sandbox) -> str:
        if self._is_looking:
            return "asking the sandbox…"
        if self._problem:
            return self._problem
        if sandbox.state is not SandboxState.RUNNING and self.found is None:
            return f"{shown_name(sandbox)} is {state_text(sandbox.state)}" + self._ways(
                "port_look", "asks it and wakes it"
            )
        if not self.lines:
            return "nothing listens inside" + self._ways("port_add", "forwards any port")
        line = self.selected
        if line is not None and line.forward is not None:
            return " · ".join(filter(None, (line.forward.url, traffic_of(line.forward), line.forward.last_error)))
        return self._ways("port_forward", "opens it on this machine").removeprefix(" · ")

    def _ways(self, action_id: str, words: str) -> str:
        keys = self.keys_to(action_id)
        return f" · {keys} {words}" if keys else ""


def _pair_problem(text: str) -> str:
    if not text:
        return "nothing yet"
    try:
        parse_mapping(text)
    except UsageError as exc:
        return exc.message
    return ""
