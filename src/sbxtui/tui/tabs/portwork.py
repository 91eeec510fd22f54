"""The background work of the ports tab: workers call the port desk and post messages; none touches a widget."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Event, Registration, Sandbox
from sbxtui.tui.fleet import key_of
from sbxtui.tui.messages import Progress
from sbxtui.tui.tabs.watching import WatchingTab
from sbxtui.tui.working import worker

if TYPE_CHECKING:
    from sbxtui.services.forward.desk import ForwardView, PortDesk
    from sbxtui.services.ports import OpenPort


class ForwardsSeen(Message):
    """The forwards of a sandbox are others, or cannot be told. `key` is the sandbox's."""

    def __init__(self, key: str, forwards: Sequence[ForwardView], error: SbxError | None = None) -> None:
        super().__init__()
        self.key = key
        self.forwards = forwards
        self.error = error


class PortsFound(Message):
    """The sandbox told what listens in it, or did not."""

    def __init__(self, key: str, found: Sequence[OpenPort] | None, error: SbxError | None = None) -> None:
        super().__init__()
        self.key = key
        self.found = found
        self.error = error


class PortsBegan(Message):
    """Something new listens in sandboxes, as events tell, whoever noticed."""

    def __init__(self, events: Sequence[Event]) -> None:
        super().__init__()
        self.events = events


class PortDone(Message):
    """A forward was begun or ended, or not."""

    def __init__(self, doing: str, words: str, error: SbxError | None = None) -> None:
        super().__init__()
        self.doing = doing
        self.words = words
        self.error = error


Act = Callable[["PortDesk", Registration], Awaitable[str]]


class PortWork(WatchingTab):
    """A tab that can work on a sandbox's ports."""

    WATCH_GROUP = "forwards"

    @worker(exclusive=True, group="forwards")
    async def watch_forwards(self, sandbox: Sandbox) -> None:
        """Tell how its forwards are for as long as they are looked at."""
        key = key_of(sandbox)
        try:
            desk, row = await self._at(sandbox)
            async with aclosing(desk.follow(row)) as seen:
                async for forwards in seen:
                    self.post_message(ForwardsSeen(key, forwards))
        except SbxError as exc:
            self.post_message(ForwardsSeen(key, (), exc))

    @worker(exclusive=True, group="ports")
    async def look_inside(self, sandbox: Sandbox) -> None:
        """Ask the sandbox what listens in it."""
        key = key_of(sandbox)
        try:
            desk, row = await self._at(sandbox)
            self.post_message(PortsFound(key, await desk.look(row)))
        except SbxError as exc:
            self.post_message(PortsFound(key, None, exc))

    @worker(exclusive=True, group="port-news")
    async def follow_news(self) -> None:
        """Tell of ports that begin to be listened on, for as long as the tab lives."""
        from sbxtui.services.activity import follow_events

        services = self.services
        after = await asyncio.to_thread(services.events.latest_seq)
        async with aclosing(follow_events(services.settings.home, services.events, after_seq=after)) as batches:
            async for batch in batches:
                if news := [event for event in batch if event.kind == "port.listening"]:
                    self.post_message(PortsBegan(news))

    @worker(exclusive=True, group="port-watch")
    async def watch_ports(self) -> None:
        """Have it noticed what begins to listen in any sandbox, for as long as the tab lives."""
        services = self.services
        with suppress(SbxError):
            await services.port_desk.watch(services.context.name)

    @worker(group="browser")
    async def open_page(self, url: str) -> None:
        """Ask the browser this machine would choose for a page; whether there is one is not known.

        It gets no terminal: a browser that draws on one, or prints, would spoil the screen.
        """
        nowhere = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "webbrowser", url),
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            start_new_session=True,
        )
        await process.wait()

    def start_forward(self, sandbox: Sandbox, remote_port: int, local_port: int | None = None) -> None:
        """Forward a port."""

        async def act(desk: PortDesk, row: Registration) -> str:
            view = await desk.start(row, remote_port, local_port)
            return f"{view.url} → {row.name}:{view.remote_port}"

        self._act(sandbox, "forward", act)

    def stop_forward(self, sandbox: Sandbox, local_port: int) -> None:
        """End a forward."""

        async def act(desk: PortDesk, row: Registration) -> str:
            await desk.stop(row, local_port)
            return f"port {local_port} is forwarded no more"

        self._act(sandbox, "forward stop", act)

    @worker(group="change")
    async def _act(self, sandbox: Sandbox, doing: str, act: Act) -> None:
        self.main.post_message(Progress(doing, f"{doing} {sandbox.name}"))
        try:
            desk, row = await self._at(sandbox)
            self.post_message(PortDone(doing, await act(desk, row)))
        except SbxError as exc:
            self.post_message(PortDone(doing, "", exc))

    async def _at(self, sandbox: Sandbox) -> tuple[PortDesk, Registration]:
        # What it needs is loaded only now.
        desk = await asyncio.to_thread(lambda: self.services.port_desk)
        return desk, await self.main.row_of(sandbox)
