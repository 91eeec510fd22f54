"""A terminal's end of `WS /v2/jobs/{id}/attach`, for tests: sends frames, collects what comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from sbxguest import wire
from sbxguest.wire import Frame, FrameType


@dataclass
class Attached:
    """One connection and all it has received."""

    connection: ClientConnection
    frames: list[Frame] = field(default_factory=list)

    @property
    def output(self) -> bytes:
        """All output so far, gaps left out."""
        return b"".join(frame.payload for frame in self.frames if frame.type == FrameType.DATA)

    @property
    def job(self) -> dict[str, Any]:
        """What the guest said first."""
        return wire.payload_json(self.frames[0])

    @property
    def exit(self) -> dict[str, Any] | None:
        """The job's end, once it was told."""
        return wire.payload_json(self.frames[-1]) if self.frames[-1].type == FrameType.EXIT else None

    @property
    def accepted(self) -> int:
        """How far the guest has said it wrote this connection's input."""
        return max((frame.cursor for frame in self.of(FrameType.ACK)), default=0)

    def of(self, frame_type: FrameType) -> list[Frame]:
        """All frames of one type so far."""
        return [frame for frame in self.frames if frame.type == frame_type]

    async def send(self, frame_type: FrameType, cursor: int = 0, payload: bytes = b"") -> None:
        """Send one frame."""
        await self.connection.send(wire.encode(Frame(frame_type, cursor, payload)))

    async def ask(self, frame_type: FrameType, **value: object) -> None:
        """Send one frame with a document."""
        await self.connection.send(wire.encode(wire.json_frame(frame_type, 0, value)))

    async def until(self, is_enough: Callable[[], bool]) -> None:
        """Receive until that holds."""
        while not is_enough():
            await self.until_more()

    async def until_more(self) -> None:
        """Receive one message."""
        message = await self.connection.recv()
        assert isinstance(message, bytes)
        self.frames += wire.decode_message(message)

    async def until_accepted(self, offset: int) -> None:
        """Receive until the input before `offset` was written."""
        await self.until(lambda: self.accepted >= offset)

    async def until_output(self, text: bytes) -> None:
        """Receive until the output holds `text`."""
        await self.until(lambda: text in self.output)

    async def until_closed(self) -> int:
        """Receive to the end; returns the close code."""
        try:
            await self.until(lambda: False)
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006
        raise AssertionError("unreachable")


@asynccontextmanager
async def attached(
    url: str, job_id: str, *, headers: dict[str, str] | None = None, **query: Any
) -> AsyncIterator[Attached]:
    """Attach to a job of the guest at `url` (`http://…`)."""
    target = f"ws{url.removeprefix('http')}/v2/jobs/{job_id}/attach?{urlencode(query)}"
    async with connect(target, additional_headers=headers, compression=None, max_size=None, proxy=None) as connection:
        yield Attached(connection)
