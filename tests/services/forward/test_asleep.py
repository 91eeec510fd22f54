"""A sandbox that was stopped, and that nothing wakes: who asks is told so, and what went on before goes on later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sbxtui.core.errors import Conflict
from sbxtui.guest.tunnel import TunnelState
from tests.support.forwarding import Forwarded, echo, forwarded, serving
from tests.support.guest_process import GuestProcess
from tests.support.relay import Relay, running_relay

LIMIT_S = 60
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def scene(guest: GuestProcess) -> AsyncIterator[tuple[Relay, Forwarded]]:
    async with (
        asyncio.timeout(LIMIT_S),
        serving(echo) as port,
        running_relay(guest.port) as relay,
        forwarded(relay.url, port) as forward,
    ):
        yield relay, forward


def stop(relay: Relay, forward: Forwarded) -> None:
    """As `sbx stop` does: connections to it end, and none is to be had."""
    forward.explained = Conflict("`app` is suspended", hint="resume it with `sbx start app`")
    forward.asleep.set()
    relay.answers = [502] * 100
    relay.cut()


@pytest.mark.parametrize("request_bytes", [GET, UPGRADE, POST])
async def test_a_request_is_answered_that_it_is_suspended_and_how_to_resume_it(
    guest: GuestProcess, request_bytes: bytes
) -> None:
    async with scene(guest) as (relay, forward):
        stop(relay, forward)
        for _ in range(2):
            reader, writer = await forward.connect()
            writer.write(request_bytes)
            answer = (await reader.read()).lower()
            assert answer.startswith(b"http/1.1 503 ") and b"\r\nretry-after: " in answer
            assert b"`app` is suspended" in answer and b"sbx start app" in answer
        assert "503" in forward.status.last_error and not forward.tunnel.mux.streams


async def test_a_client_of_another_protocol_is_closed_after_a_while(
    guest: GuestProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.services.forward.inlet.ASLEEP_S", 0.05)
    async with scene(guest) as (relay, forward):
        stop(relay, forward)
        reader, writer = await forward.connect()
        writer.write(b"SSH-2.0-x\r\n")
        assert await reader.read() == b""
        assert "suspended" in forward.status.last_error


async def test_one_that_waits_goes_on_when_somebody_resumes_it_in_time(
    guest: GuestProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.guest.tunnel._LOOK_EVERY_S", 0.05)
    async with scene(guest) as (relay, forward):
        stop(relay, forward)
        reader, writer = await forward.connect()
        writer.write(b"SSH-2.0-x\r\n")
        await forward.until(TunnelState.PARKED)
        relay.answers, forward.explained = [], None
        forward.asleep.clear()
        assert await reader.readline() == b"SSH-2.0-x\r\n"


async def test_what_was_connected_before_goes_on_when_it_is_resumed_and_a_later_request_is_asked_again(
    guest: GuestProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbxtui.guest.tunnel._LOOK_EVERY_S", 0.05)
    monkeypatch.setattr("sbxtui.services.forward.inlet.ASLEEP_S", 0.05)
    async with scene(guest) as (relay, forward):
        reader, writer = await forward.connect()
        writer.write(b"before\n")
        assert await reader.readline() == b"before\n"
        # The server gives back what it gets, which is the answer of another one here.
        asked, asking = await forward.connect()
        asking.write(GET)
        assert await asked.readexactly(len(GET)) == GET
        stop(relay, forward)
        await forward.until(TunnelState.PARKED)
        writer.write(b"after\n")
        asking.write(GET)
        assert await asked.read() == b""
        other, asking = await forward.connect()
        asking.write(GET)
        assert (await other.read()).startswith(b"HTTP/1.1 503 ")
        relay.answers, forward.explained = [], None
        forward.asleep.clear()
        assert await reader.readline() == b"after\n"
