"""MCP over the client's two pipes: one message a line.

Pipes are read and written as they can be; whatever may wait blocks threads that nobody waits for, so that no end of the
program hangs on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from sbxtui.core.threads import Lane
from sbxtui.core.writing import write_all
from sbxtui.mcp_server.guard import Wire, eager
from sbxtui.mcp_server.incoming import EDGE_BYTES, too_long, understood

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 16
LINE_BYTES = 64 << 20
# A client that closes its end right after asking is a script: it waits for what it asked for.
_SCRIPT_S, _DRAIN_SCRIPT_S, _DRAIN_S = 1.0, 60.0, 0.3
_DRAIN_POLL_S = 0.1
_LISTENING_EVERY_S = 0.25
# Streams that end with the connection only.
_ENDLESS = frozenset({"subscriptions/listen"})


@dataclass(slots=True)
class _Asked:
    """Requests that were not answered yet, and when the last message came."""

    open: set[str | int] = field(default_factory=set)
    last_s: float = 0.0

    def came(self, message: object, now_s: float) -> None:
        """A message of the client."""
        self.last_s = now_s
        if isinstance(message, JSONRPCRequest) and message.method not in _ENDLESS:
            self.open.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            number = (message.params or {}).get("requestId")
            # Anything may be sent.
            if isinstance(number, str | int):
                self.open.discard(number)

    def went(self, message: object) -> None:
        """A message of ours."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self.open.discard(message.id)


Inbound = MemoryObjectReceiveStream[SessionMessage | Exception]
Outbound = MemoryObjectSendStream[SessionMessage]


@contextlib.asynccontextmanager
async def stdio_streams(wire: Wire) -> AsyncIterator[tuple[Inbound, Outbound]]:
    """The two streams a server runs on. The first ends when the client is gone, or has its answers and asks no more."""
    asked = _Asked()
    to_server, inbound = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbound, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    # Not in a task group of the protocol's library: its cancels reach whoever waits for the group, too.
    reading = asyncio.create_task(_read(wire, to_server, outbound.clone(), asked))
    writing = asyncio.create_task(_write(wire, from_server, asked))
    listening = asyncio.create_task(_until_hung_up(wire.output_fd))
    tasks = [reading, writing, listening]
    for ending in (writing, listening):
        # Who does not listen needs no answers: the server's end is that of what it reads.
        ending.add_done_callback(lambda _: reading.cancel())
    try:
        yield inbound, outbound
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(
    wire: Wire, to_server: MemoryObjectSendStream[SessionMessage | Exception], refusing: Outbound, asked: _Asked
) -> None:
    loop = asyncio.get_running_loop()
    async with to_server, refusing:
        async for line in _lines(wire.input_fd):
            message = line.refusals() if isinstance(line, _Long) else understood(line)
            if isinstance(message, list):
                log.warning("a line of %d bytes was no message of MCP", len(line))
                for refusal in message:
                    await refusing.send(SessionMessage(refusal))
                continue
            asked.came(message, loop.time())
            await to_server.send(SessionMessage(message))
        await _drain(asked)


class _Long:
    """A line that is too long to be kept: only its edges are."""

    def __init__(self, line: bytearray) -> None:
        self._front = bytes(line[:EDGE_BYTES])
        self._end = bytes(line[-EDGE_BYTES:])
        self._size_bytes = len(line)

    def __len__(self) -> int:
        return self._size_bytes

    def add(self, data: bytes) -> None:
        """It goes on."""
        self._end = (self._end + data)[-EDGE_BYTES:]
        self._size_bytes += len(data)

    def refusals(self) -> list[JSONRPCError]:
        """The answer of whoever waits for one."""
        return too_long(self._front, self._end, LINE_BYTES)


async def _lines(number: int) -> AsyncIterator[bytes | _Long]:
    rest = bytearray()
    long: _Long | None = None
    async for chunk in _chunks(number):
        *lines, last = chunk.split(b"\n")
        for line in lines:
            if long is not None:
                long.add(line)
                yield long
                long = None
                continue
            whole = bytes(rest) + line
            rest.clear()
            if whole.strip():
                yield whole
        if long is not None:
            long.add(last)
            continue
        rest += last
        if len(rest) > LINE_BYTES:
            long = _Long(rest)
            rest.clear()
    if long is not None:
        yield long
    elif rest.strip():
        yield bytes(rest)


async def _chunks(number: int) -> AsyncIterator[bytes]:
    """What is sent, to its end: read at once where that cannot wait, else in a thread."""
    own = eager(number, os.O_RDONLY)
    if own is None:
        lane = Lane()
        while chunk := await lane.run(lambda: _read_some(number)):
            yield chunk
        return
    try:
        while True:
            try:
                chunk = os.read(own, _CHUNK_BYTES)
            except BlockingIOError:
                await _readable(own)
                continue
            if not chunk:
                return
            yield chunk
    finally:
        os.close(own)


async def _readable(number: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(number, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(number)


def _read_some(number: int) -> bytes:
    while True:
        try:
            return os.read(number, _CHUNK_BYTES)
        except BlockingIOError:
            # Whoever made the pipe, or shares it, wants to wait for nothing.
            select.select([number], [], [])


async def _drain(asked: _Asked) -> None:
    """Answer what was asked before the client closed its end, as long as somebody still listens."""
    loop = asyncio.get_running_loop()
    limit_s = _DRAIN_SCRIPT_S if loop.time() - asked.last_s < _SCRIPT_S else _DRAIN_S
    deadline_s = loop.time() + limit_s
    while asked.open and loop.time() < deadline_s:
        await asyncio.sleep(_DRAIN_POLL_S)


async def _until_hung_up(number: int) -> None:
    while not _has_hung_up(number):
        await asyncio.sleep(_LISTENING_EVERY_S)


def _has_hung_up(number: int) -> bool:
    poll = select.poll()
    poll.register(number, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


async def _write(wire: Wire, from_server: MemoryObjectReceiveStream[SessionMessage], asked: _Asked) -> None:
    lane = Lane()
    own = eager(wire.output_fd, os.O_WRONLY)
    try:
        async with from_server:
            async for sent in from_server:
                line = _encoded(sent.message) + b"\n"
                rest = line if own is None else line[_written_at_once(own, line) :]
                if rest:
                    await lane.run(partial(write_all, wire.output_fd, rest))
                asked.went(sent.message)
    except OSError as exc:
        log.info("the client does not listen any more: %s", exc)
    finally:
        if own is not None:
            os.close(own)


def _written_at_once(number: int, line: bytes) -> int:
    """How much of a line the pipe has room for; most go without a thread."""
    try:
        return os.write(number, line)
    except BlockingIOError:
        return 0


def _encoded(message: Any) -> bytes:
    try:
        return bytes(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
    except ValueError:
        # A lone surrogate, which stands for a byte that is no text.
        document = message.model_dump(by_alias=True, exclude_unset=True, mode="json")
        return json.dumps(document, separators=(",", ":")).encode()
