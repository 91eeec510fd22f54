"""MCP over the client's two pipes: one message a line.

Reading and writing block threads that nobody waits for, so that no end of the program hangs on them.
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
from sbxtui.mcp_server.guard import Wire
from sbxtui.mcp_server.incoming import understood

log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 16
_LINE_BYTES = 64 << 20
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
            self.open.discard((message.params or {}).get("requestId", ""))

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
            message = understood(line)
            if isinstance(message, list):
                log.warning("a line of %d bytes was no message of MCP", len(line))
                for refusal in message:
                    await refusing.send(SessionMessage(refusal))
                continue
            asked.came(message, loop.time())
            await to_server.send(SessionMessage(message))
        await _drain(asked)


async def _lines(number: int) -> AsyncIterator[bytes]:
    lane = Lane()
    rest = bytearray()
    while chunk := await lane.run(lambda: _read_some(number)):
        *lines, last = chunk.split(b"\n")
        for line in lines:
            whole = bytes(rest) + line
            rest.clear()
            if whole.strip():
                yield whole
        rest += last
        if len(rest) > _LINE_BYTES:
            log.warning("the client sent a line of over %d bytes", _LINE_BYTES)
            return
    if rest.strip():
        yield bytes(rest)


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
    async with from_server:
        async for sent in from_server:
            line = _encoded(sent.message) + b"\n"
            try:
                await lane.run(partial(write_all, wire.output_fd, line))
            except OSError as exc:
                log.info("the client does not listen any more: %s", exc)
                return
            asked.went(sent.message)


def _encoded(message: Any) -> bytes:
    try:
        return bytes(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
    except ValueError:
        # A lone surrogate, which stands for a byte that is no text.
        document = message.model_dump(by_alias=True, exclude_unset=True, mode="json")
        return json.dumps(document, separators=(",", ":")).encode()
