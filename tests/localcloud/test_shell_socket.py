"""A shell over the endpoint, as any client of the platform's opens one."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from tests.localcloud.endpoint import Endpoint, run_sandbox
from tests.support.local_cloud import LocalCloud

CONNECTOR = "arn:aws:lambda:local-1:aws:network-connector:aws-network-connector:"


@pytest.fixture(scope="module")
def with_shell(cloud: LocalCloud) -> Endpoint:
    """A sandbox that may be asked for a shell."""
    return run_sandbox(cloud, ingressNetworkConnectors=[CONNECTOR + "HTTP_INGRESS", CONNECTOR + "SHELL_INGRESS"])


def shell_token(endpoint: Endpoint) -> str:
    """A token for a shell of it, and for nothing else."""
    minted = endpoint.client.create_microvm_shell_auth_token(microvmIdentifier=endpoint.id, expirationInMinutes=5)
    return str(minted["authToken"]["X-aws-proxy-auth"])


def opened(endpoint: Endpoint, token: str, path: str = "/shell", *more: str) -> connect:
    """A WebSocket to the endpoint with a token as one of its subprotocols."""
    offered = ["lambda-microvms", f"lambda-microvms.authentication.{token}", *more]
    return connect(
        f"wss://{endpoint.address}{path}",
        ssl=endpoint.context(),
        subprotocols=[Subprotocol(one) for one in offered],
        compression=None,
        proxy=None,
    )


async def read_until(socket: ClientConnection, wanted: bytes) -> bytes:
    """Output until it holds something."""
    said = b""
    while wanted not in said:
        try:
            async with asyncio.timeout(20):
                piece = await socket.recv()
        except TimeoutError as exc:
            raise AssertionError(f"not {wanted!r}, but {said!r}") from exc
        assert isinstance(piece, bytes), "output is bytes"
        said += piece
    return said


async def test_a_shell_types_resizes_interrupts_and_ends(with_shell: Endpoint) -> None:
    token = shell_token(with_shell)
    async with asyncio.timeout(120), opened(with_shell, token, "/", "lambda-microvms.port.8022") as socket:
        assert socket.subprotocol == "lambda-microvms"
        first = json.loads(await socket.recv(decode=True))
        assert first["type"] == "session_init"
        assert uuid.UUID(first["session_id"])
        await socket.send(b"stty size; echo term=$TERM\n")
        assert b"0 0" in await read_until(socket, b"term=xterm\r")
        await socket.send(json.dumps({"type": "resize", "cols": 91, "rows": 17}))
        # Who says it is who sleeps, so that it is there to be interrupted.
        await socket.send("sh -c 'stty size; echo asl''eep; exec sleep 1000'\n")
        assert b"17 91" in await read_until(socket, b"asleep")
        await socket.send(b"\x03")
        await socket.send(b"echo status $?\n")
        await read_until(socket, b"status 130")
        # Any other text is typed.
        await socket.send('echo "{\\"type\\":\\"none\\"}"\n')
        await read_until(socket, b'{"type":"none"}\r\n')
        await socket.send(b"exit\n")
        with pytest.raises(ConnectionClosed) as ended:
            while True:
                await socket.recv()
        assert ended.value.rcvd is not None
        assert (ended.value.rcvd.code, ended.value.rcvd.reason) == (1000, "shell exited")


async def test_a_token_opens_a_shell_or_ports_and_never_both(with_shell: Endpoint) -> None:
    token = shell_token(with_shell)
    assert (await with_shell.ask(with_shell.head(8080, token=token))).startswith(b"HTTP/1.1 502")
    for given, path, more in (
        (token, "/other", ()),
        (token, "/shell", ("lambda-microvms.port.9000",)),
        (with_shell.token, "/shell", ("lambda-microvms.port.8022",)),
    ):
        with pytest.raises(InvalidStatus) as refused:
            async with asyncio.timeout(30), opened(with_shell, given, path, *more):
                pass
        assert refused.value.response.status_code == 502
