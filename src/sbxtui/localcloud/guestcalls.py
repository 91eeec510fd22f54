"""Asking the bundled guest in a sandbox, through its keeper, without a client library: one connection a request."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sbxguest import wire
from sbxtui.core.errors import GuestUnreachable
from sbxtui.localcloud.hooks import Dial

_PIECE_BYTES = 65_536
_MAX_ANSWER_BYTES = 8 << 20


class GuestRefused(Exception):
    """The guest answered with an error; the words are its own."""


@dataclass(frozen=True, slots=True)
class GuestCalls:
    """The guest behind `dial`, on its `port`."""

    dial: Dial
    port: int

    async def ask(self, method: str, path: str, body: bytes = b"", *, kind: str = "application/json") -> dict[str, Any]:
        """One request with a short answer; the caller sets the deadline.

        Raises:
            GuestRefused: It answered an error.
            GuestUnreachable: It did not answer.
        """
        async with self._answered(method, path, body, kind) as pieces:
            answer = b"".join([piece async for piece in pieces])
        return dict(json.loads(answer or b"{}"))

    async def run(self, job: Mapping[str, Any], said: Callable[[bytes], None]) -> int:
        """Run a job to its end.

        Args:
            job: As `POST /v2/jobs` takes it.
            said: Told all output as it comes.

        Returns:
            Its exit code; 128 and the signal's number where one ended it.

        Raises:
            GuestRefused: It could not be started.
            GuestUnreachable: The sandbox ended meanwhile.
        """
        async with aclosing(self.frames(job)) as frames:
            async for frame in frames:
                if frame.type == wire.FrameType.DATA:
                    said(frame.payload)
                elif frame.type == wire.FrameType.EXIT:
                    return exit_code(wire.payload_json(frame))
        raise AssertionError("frames end with EXIT, or raise")

    async def frames(self, job: Mapping[str, Any]) -> AsyncGenerator[wire.Frame, None]:
        """Start a job and follow it: JOB once it is there, and EXIT last. To be closed by who reads it.

        Raises:
            GuestRefused: It could not be started.
            GuestUnreachable: The sandbox ended meanwhile.
        """
        reader = f"reader={uuid.uuid4().hex}"
        method, path, body = "POST", f"/v2/jobs?follow=1&{reader}", json.dumps(job).encode()
        cursor, has_more = 0, True
        while has_more:
            # One answer ends before the log of a job that waits for its reader is full.
            has_more, decoder = False, wire.FrameDecoder()
            async with self._answered(method, path, body, "application/json") as pieces:
                async for piece in pieces:
                    for frame in decoder.feed(piece):
                        yield frame
                        if frame.type == wire.FrameType.EXIT:
                            return
                        has_more = has_more or frame.end_cursor > cursor
                        cursor = max(cursor, frame.end_cursor)
            method, body = "GET", b""
            path = f"/v2/jobs/{job['id']}/log?cursor={cursor}&follow=1&hold=1&{reader}"
        raise GuestUnreachable("the sandbox ended while a command ran in it")

    @asynccontextmanager
    async def _answered(self, method: str, path: str, body: bytes, kind: str) -> AsyncIterator[AsyncIterator[bytes]]:
        reader, writer = await (await self.dial(self.port)).streams()
        try:
            head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
            head += [f"Content-Type: {kind}", f"Content-Length: {len(body)}", "", ""]
            writer.write("\r\n".join(head).encode())
            for start in range(0, len(body), _PIECE_BYTES):
                writer.write(body[start : start + _PIECE_BYTES])
                await writer.drain()
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            is_chunked = "transfer-encoding: chunked" in answer.lower()
            pieces = _chunks(reader) if is_chunked else _rest(reader)
            if answer.split(" ", 2)[1][:1] != "2":
                raise GuestRefused(_words_in(b"".join([piece async for piece in pieces])))
            yield pieces
        except (OSError, EOFError, asyncio.LimitOverrunError, IndexError, ValueError) as exc:
            raise GuestUnreachable(f"the guest of a sandbox does not answer: {exc}") from exc
        finally:
            writer.close()


def exit_code(ended: Mapping[str, Any]) -> int:
    """Of what a guest says of a job's end."""
    number = ended.get("signal")
    if number:
        return 128 + int(number)
    return int(ended["code"]) if ended.get("code") is not None else 1


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readline()


async def _rest(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    read = 0
    while piece := await reader.read(_PIECE_BYTES):
        read += len(piece)
        if read > _MAX_ANSWER_BYTES:
            raise ValueError("its answer is too long")
        yield piece


def _words_in(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer[:200].decode(errors="replace")
