"""Opening a WebSocket to a guest, through the endpoint proxy with a token or straight; its failures are our errors."""

from __future__ import annotations

import logging
import socket
import ssl
from urllib.parse import urlencode

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from sbxguest.mux import near
from sbxguest.wire import ERROR_HEADER, MAX_MESSAGE_BYTES
from sbxtui.core.errors import SbxError
from sbxtui.guest.directsocket import DirectSocket
from sbxtui.guest.faults import answered, token_refused, translated
from sbxtui.guest.http1 import HttpError, HttpTimeout
from sbxtui.guest.pool import address_of
from sbxtui.guest.transport import TokenSource

_MARKER = "lambda-microvms"
# The handshake carries the token, and the library would log it at the debug level.
_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.setLevel(logging.CRITICAL)
# A dead path to the endpoint is noticed by the kernel, without a byte that counts as use of the sandbox.
_KEEPALIVE = ((socket.SO_KEEPALIVE, 1),)
_KEEPALIVE_TCP = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_NOTSENT_LOWAT", 128 * 1024))
_UNSENT_BYTES = 128 * 1024


async def dial(
    endpoint: str,
    tokens: TokenSource | None,
    path: str,
    query: dict[str, str | int],
    *,
    port: int,
    verify: ssl.SSLContext | bool,
    doing: str,
    timeout_s: float,
) -> DirectSocket:
    """Open a WebSocket; whoever called closes it. A token that the endpoint refuses is renewed once.

    Raises:
        AccessDenied: The endpoint refused our token twice. Throttled: It has enough of us for now.
        GuestUnreachable: No answer, or none of a guest. Unsupported: The guest has nothing at that path.
        UntrustedEndpoint: Its certificate does not hold.
    """
    for is_renewed in (False, True):
        token = "" if tokens is None else await (tokens.token(refresh=True) if is_renewed else tokens.token())
        try:
            with translated(doing):
                return await _opened(endpoint, token, f"{path}?{urlencode(query)}", port, verify, timeout_s)
        except InvalidStatus as exc:
            response = exc.response
            is_of_endpoint = response.status_code == 403 and ERROR_HEADER not in response.headers
            if is_of_endpoint and tokens is not None and not is_renewed:
                continue
            raise _refusal(endpoint, doing, exc, is_of_endpoint=is_of_endpoint) from None
    raise AssertionError("unreachable")


def _refusal(endpoint: str, doing: str, exc: InvalidStatus, *, is_of_endpoint: bool) -> SbxError:
    body = bytes(exc.response.body or b"")
    return token_refused(endpoint, doing, body) if is_of_endpoint else answered(exc.response.status_code, body)


async def _opened(
    endpoint: str, token: str, target: str, port: int, verify: ssl.SSLContext | bool, timeout_s: float
) -> DirectSocket:
    address = address_of(endpoint, verify)
    offered = [_MARKER, f"{_MARKER}.authentication.{token}", f"{_MARKER}.port.{port}"] if token else []
    try:
        connection = await connect(
            f"{'wss' if address.tls else 'ws'}://{address.authority}{target}",
            host=address.host,
            port=address.port,
            ssl=address.tls,
            subprotocols=[Subprotocol(one) for one in offered] or None,
            user_agent_header="sbx",
            logger=_SILENT,
            compression=None,
            proxy=None,
            ping_interval=None,
            open_timeout=timeout_s,
            close_timeout=1.0,
            max_size=MAX_MESSAGE_BYTES,
            write_limit=_UNSENT_BYTES,
            create_connection=DirectSocket,
        )
    except TimeoutError:
        raise HttpTimeout("no connection in time") from None
    except InvalidStatus:
        raise
    except (OSError, EOFError, InvalidHandshake, InvalidURI) as exc:
        raise HttpError(str(exc) or type(exc).__name__) from exc
    assert isinstance(connection, DirectSocket)
    _tune(connection)
    return connection


def _tune(connection: DirectSocket) -> None:
    sock = connection.transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    near.tune(sock)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.SOL_SOCKET, option, value)
    for name, value in _KEEPALIVE_TCP:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
