"""The endpoint of a running sandbox as a client meets it: raw TLS connections, and servers of a test as its guests.

Sandboxes of the `process` runtime share the machine's loopback, so any port a test listens on is a port "inside".
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.local_cloud import LocalCloud

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running sandbox, and a token for all its ports."""

    cloud: LocalCloud
    client: Any
    id: str
    port: int
    token: str

    @property
    def address(self) -> str:
        """As the API says it."""
        return f"127.0.0.1:{self.port}"

    def context(self) -> ssl.SSLContext:
        """TLS that trusts this home's authority and nothing else."""
        return ssl.create_default_context(cafile=self.cloud.told()["ca_file"])

    def mint(self, ports: list[dict[str, Any]]) -> str:
        """A token for other ports."""
        minted = self.client.create_microvm_auth_token(
            microvmIdentifier=self.id, expirationInMinutes=5, allowedPorts=ports
        )
        return str(minted["authToken"]["X-aws-proxy-auth"])

    def state(self) -> str:
        """As the API says it now."""
        return str(self.client.get_microvm(microvmIdentifier=self.id)["state"])

    def head(self, port: int, start: str = "GET / HTTP/1.1", *fields: str, token: str | None = None) -> bytes:
        """A request's head with credentials."""
        lines = [
            start,
            f"Host: {self.address}",
            f"X-aws-proxy-auth: {token or self.token}",
            f"X-aws-proxy-port: {port}",
        ]
        return "\r\n".join([*lines, *fields, "", ""]).encode()

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """One TLS connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context())
        try:
            yield reader, writer
        finally:
            writer.close()

    async def ask(self, request: bytes) -> bytes:
        """Send bytes, then read until the proxy closes, or one whole answer with a length came."""
        async with asyncio.timeout(20), self.connected() as (reader, writer):
            writer.write(request)
            return await read_answer(reader)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """One answer with a Content-Length (or none: its head only); what came before the end if the connection ends."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as exc:
        return exc.partial
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
    return head + await reader.readexactly(int(fields.get(b"content-length", b"0")))


@contextlib.asynccontextmanager
async def guest_server(serve: Serve) -> AsyncIterator[int]:
    """A server of the test, as a guest's; yields its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A guest that answers every request with `OK`."""
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()


def run_sandbox(cloud: LocalCloud, **params: Any) -> Endpoint:
    """Launch a sandbox and wait until it runs."""
    client = cloud.client()
    launched = client.run_microvm(**{"imageIdentifier": cloud.image_arn(), **params})
    sandbox_id = launched["microvmId"]
    wait_for_state(client, sandbox_id, "RUNNING")
    endpoint = Endpoint(cloud, client, sandbox_id, int(launched["endpoint"].rpartition(":")[2]), "")
    return Endpoint(cloud, client, sandbox_id, endpoint.port, endpoint.mint([{"allPorts": {}}]))


def wait_for_state(client: Any, sandbox_id: str, wanted: str, timeout_s: float = 30.0) -> dict[str, Any]:
    """Ask until a sandbox is in a state; its details then."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen: dict[str, Any] = client.get_microvm(microvmIdentifier=sandbox_id)
        if seen["state"] == wanted:
            return seen
        if time.monotonic() > deadline or (seen["state"] == "TERMINATED" != wanted):
            raise AssertionError(f"{sandbox_id} is {seen['state']} ({seen.get('stateReason', '')}), not {wanted}")
        time.sleep(0.01)


def hello(endpoint: Endpoint) -> dict[str, Any]:
    """What the guest behind an endpoint says of itself."""
    headers = {"X-aws-proxy-auth": endpoint.token}
    reply = httpx.get(f"https://{endpoint.address}/v2/hello", headers=headers, verify=endpoint.context(), timeout=20)
    assert reply.status_code == 200, reply
    told: dict[str, Any] = reply.json()
    return told
