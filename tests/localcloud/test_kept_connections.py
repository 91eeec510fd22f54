"""A client's connection that is kept: each request on it meets what holds by then, whatever the ones before met."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from sbxtui.localcloud import tokens
from sbxtui.localcloud.keys import load_or_make_keys
from tests.localcloud.endpoint import OK, Endpoint, answer_ok, guest_server, read_answer, run_sandbox, wait_for_state
from tests.localcloud.signed import send
from tests.localcloud.test_proxy import SMUGGLING
from tests.support.local_cloud import LocalCloud

FAULTS = "/sbx/v1/faults"
WARM = 3


class Client:
    """One connection to an endpoint, for a port of its sandbox."""

    def __init__(
        self, endpoint: Endpoint, port: int, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        self.endpoint = endpoint
        self.port = port
        self.reader, self.writer = streams

    async def ask(self, *fields: str, token: str | None = None) -> bytes:
        """A request, and its answer's status."""
        self.writer.write(self.endpoint.head(self.port, "GET / HTTP/1.1", *fields, token=token))
        return (await read_answer(self.reader))[9:12]

    async def warm_up(self) -> None:
        """Ask until it is known."""
        assert [await self.ask() for _ in range(WARM)] == [b"200"] * WARM


async def test_what_changed_between_two_requests_holds_for_the_second(cloud: LocalCloud, endpoint: Endpoint) -> None:
    keys = load_or_make_keys(cloud.home / "local" / "keys.json")
    async with asyncio.timeout(60), guest_server(answer_ok) as port, endpoint.connected() as streams:
        client = Client(endpoint, port, streams)
        await client.warm_up()
        assert await client.ask(token="bad") == b"403"
        assert await client.ask(token=endpoint.mint([{"port": 1}])) == b"403"
        assert await client.ask("X-aws-proxy-force-h2: true") == b"502"
        await client.warm_up()
        rule = json.dumps({"kind": "throttle-429", "operation": "endpoint"}).encode()
        assert (await asyncio.to_thread(send, cloud, "PUT", FAULTS, rule)).status == 200
        assert await client.ask() == b"429"
        assert (await asyncio.to_thread(send, cloud, "DELETE", FAULTS)).status == 200
        await client.warm_up()
        # A token is checked with each request, and ends while the connection goes on.
        brief = tokens.mint(keys, tokens.Grant(endpoint.id, ((1, 65535),), datetime.now(UTC) + timedelta(seconds=1)))
        while (status := await client.ask(token=brief)) == b"200":
            pass
        assert status == b"403"
        await client.warm_up()


async def test_nothing_is_smuggled_behind_a_request_that_passed(endpoint: Endpoint) -> None:
    requests: list[bytes] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(WARM):
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(OK)
        while True:
            requests.append(await reader.readuntil(b"\r\n\r\n"))

    hidden = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with asyncio.timeout(60), guest_server(keep) as port:
        for fields, body in list(SMUGGLING.values())[::4]:
            async with endpoint.connected() as streams:
                client = Client(endpoint, port, streams)
                await client.warm_up()
                client.writer.write(endpoint.head(port, "POST / HTTP/1.1", fields) + body + hidden)
                assert (await read_answer(client.reader)).startswith(b"HTTP/1.1 400 ")
                assert await client.reader.read() == b""
    assert not [request for request in requests if b"/hidden" in request]


async def test_a_client_that_leaves_and_a_guest_that_breaks_off_are_seen_by_the_other(endpoint: Endpoint) -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(WARM):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
        if b"X-Break" in await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK.replace(b": 2", b": 9"))
            await writer.drain()
            return
        begun.set()
        await reader.read()
        left.set()

    async with asyncio.timeout(60), guest_server(serve) as port:
        async with endpoint.connected() as streams:
            client = Client(endpoint, port, streams)
            await client.warm_up()
            client.writer.write(endpoint.head(port, "GET / HTTP/1.1", "X-Break: 1"))
            await client.reader.readuntil(b"\r\n\r\n")
            with pytest.raises(asyncio.IncompleteReadError):
                await client.reader.readexactly(9)
        async with endpoint.connected() as streams:
            client = Client(endpoint, port, streams)
            await client.warm_up()
            client.writer.write(endpoint.head(port))
            await begun.wait()
        await left.wait()


async def test_a_request_after_a_suspend_waits_for_the_sandbox(cloud: LocalCloud) -> None:
    policy = {"maxIdleDurationSeconds": 600, "suspendedDurationSeconds": 600, "autoResumeEnabled": True}
    endpoint = await asyncio.to_thread(run_sandbox, cloud, idlePolicy=policy)
    async with asyncio.timeout(60), guest_server(answer_ok) as port, endpoint.connected() as streams:
        client = Client(endpoint, port, streams)
        await client.warm_up()
        await asyncio.to_thread(endpoint.client.suspend_microvm, microvmIdentifier=endpoint.id)
        await asyncio.to_thread(wait_for_state, endpoint.client, endpoint.id, "SUSPENDED")
        await client.warm_up()
        assert await asyncio.to_thread(endpoint.state) == "RUNNING"
    await asyncio.to_thread(endpoint.client.terminate_microvm, microvmIdentifier=endpoint.id)
