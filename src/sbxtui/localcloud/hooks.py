"""Calling a sandbox's hooks and its health check, as the platform does: plain HTTP/1.1 through the keeper's dial."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sbxtui.core.errors import GuestUnreachable
from sbxtui.localcloud.duplex import Duplex

Dial = Callable[[int], Awaitable[Duplex]]

HOOK_PATH = "/aws/lambda-microvms/runtime/v1/"
_MAX_STATUS_LINE_BYTES = 1_024
_RETRY_S = 0.02


@dataclass(frozen=True, slots=True)
class HookOutcome:
    """What a hook answered: its HTTP status, or 0 when no answer came in time."""

    name: str
    status: int
    timeout_s: float

    @property
    def is_ok(self) -> bool:
        """Only 200 is success."""
        return self.status == 200

    @property
    def reason(self) -> str:
        """The failure in the platform's words, as a `stateReason`."""
        advice = "Please check your hook endpoint and application logs for more details."
        title = self.name.capitalize()
        if self.status:
            return f"{title} lifecycle hook returned HTTP status {self.status}. {advice}"
        return f"{title} lifecycle hook invocation timed out after PT{self.timeout_s:g}S. {advice}"


async def call_hook(
    dial: Dial, port: int, name: str, *, timeout_s: float, payload: dict[str, str] | None = None
) -> HookOutcome:
    """Call one hook once; while nothing listens on the port it is tried again until the time is over.

    A request that was written is never written again: hooks are told to be idempotent, but one call is one call.
    """
    body = b"" if payload is None else json.dumps(payload).encode()
    try:
        async with asyncio.timeout(timeout_s):
            status = await _request(dial, port, "POST", HOOK_PATH + name, body)
    except TimeoutError:
        status = 0
    return HookOutcome(name, status, timeout_s)


async def ask_guest(dial: Dial, port: int, method: str, path: str, body: bytes) -> int:
    """One request to the guest; the status it answered, 502 for none. The caller sets the deadline."""
    return await _request(dial, port, method, path, body)


async def wait_healthy(dial: Dial, port: int) -> None:
    """Return when the guest answers its health check with 200; the caller sets the deadline."""
    while await _request(dial, port, "GET", "/healthz", b"") != 200:
        await asyncio.sleep(_RETRY_S)


async def _request(dial: Dial, port: int, method: str, path: str, body: bytes) -> int:
    reader, writer = await _connect(dial, port)
    try:
        lines = [f"{method} {path} HTTP/1.1", f"Host: localhost:{port}", "Connection: close"]
        lines += [f"Content-Length: {len(body)}", *(["Content-Type: application/json"] if body else [])]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        return _status(await reader.readuntil(b"\r\n"))
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return 502
    finally:
        writer.close()


async def _connect(dial: Dial, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await (await dial(port)).streams()
        except (OSError, GuestUnreachable):
            await asyncio.sleep(_RETRY_S)


def _status(line: bytes) -> int:
    parts = line[:_MAX_STATUS_LINE_BYTES].split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
        return 502
    return int(parts[1][:3])
