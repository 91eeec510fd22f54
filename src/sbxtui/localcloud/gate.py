"""Who may pass an endpoint: token and port of a request, as headers or subprotocols, and the head passed on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from sbxtui.core.heads import Head, RequestHead
from sbxtui.localcloud import tokens
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.launches import managed_connector
from sbxtui.localcloud.records import Record

DEFAULT_PORT = 8080
# What clients of a shell may name, though nothing listens there.
SHELL_PORT = 8022
_SHELL_PATHS = (b"/", b"/shell")
UNAUTHENTICATED = "Request missing authentication"
SUBPROTOCOL = b"lambda-microvms"
_AUTHENTICATION = b"lambda-microvms.authentication."
_PORT = b"lambda-microvms.port."
_PORT_TEXT = re.compile(rb"[0-9]{1,5}")
_LOOPBACK_HOST = re.compile(rb"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)


class Refused(Exception):
    """A request that does not pass: the status and the body the platform answers."""

    def __init__(self, status: int, body: str = "") -> None:
        super().__init__(body)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Passage:
    """A request that may pass: the port it is for, whether it came by the WebSocket-subprotocol form, and when its
    token ends. One for a shell is for no port.
    """

    port: int
    used_subprotocol: bool
    until: datetime
    is_shell: bool = False


def check(request: RequestHead, record: Record, keys: HomeKeys, *, now: datetime) -> Passage:
    """Check host, token and port, in the platform's order.

    Raises:
        Refused: 403 or 400 with the platform's body.
    """
    head = request.head
    if not all(_LOOPBACK_HOST.fullmatch(host) for host in head.values(b"host")):
        raise Refused(403, "Token authentication failed")
    if head.has_element(b"x-aws-proxy-force-h2", b"true"):
        # A guest that speaks HTTP/1.1 only answers such a request with 502 on the platform, and that is all we relay.
        raise Refused(502)
    token, port_text, used_subprotocol = _credentials(request)
    grant = _grant(token, record, keys, now)
    if not _PORT_TEXT.fullmatch(port_text) or not 1 <= int(port_text) <= 65_535:
        raise Refused(400, "Invalid port")
    port = int(port_text)
    if grant.is_shell:
        return _to_shell(request, port, grant.expires_at, used_subprotocol=used_subprotocol)
    if not grant.allows_port(port) or _has_no_ingress(record):
        raise Refused(403, "Access to port denied")
    return Passage(port, used_subprotocol, grant.expires_at)


def passed_on(request: RequestHead, passage: Passage, endpoint: str, request_id: str) -> Head:
    """The head the guest sees: no trace of the credentials, our endpoint as Host, a request id; the rest as it came."""
    head = request.head.without(lambda name: name.startswith(b"x-aws-proxy-") or name in (b"host", b"x-amzn-requestid"))
    if passage.used_subprotocol:
        own = [item for item in head.elements(b"sec-websocket-protocol") if not _is_ours(item)]
        head = head.without(lambda name: name == b"sec-websocket-protocol")
        head = head.plus((b"Sec-WebSocket-Protocol", b", ".join(own))) if own else head
    return head.plus((b"Host", endpoint.encode()), (b"x-amzn-requestid", request_id.encode()))


def answered_upgrade(head: Head, passage: Passage) -> Head:
    """The 101 the client sees: where the guest chose no subprotocol of the client's, ours stands for it."""
    if not passage.used_subprotocol or head.values(b"sec-websocket-protocol"):
        return head
    return head.plus((b"Sec-WebSocket-Protocol", SUBPROTOCOL))


def _credentials(request: RequestHead) -> tuple[bytes, bytes, bool]:
    head = request.head
    tokens_given = head.values(b"x-aws-proxy-auth")
    if request.is_websocket and not tokens_given and head.has_element(b"sec-websocket-protocol", SUBPROTOCOL):
        offered = head.elements(b"sec-websocket-protocol")
        return _suffix(offered, _AUTHENTICATION, b""), _suffix(offered, _PORT, b"%d" % DEFAULT_PORT), True
    ports = head.values(b"x-aws-proxy-port") or [b"%d" % DEFAULT_PORT]
    # Two tokens or two ports are as unreadable as none.
    return _only(tokens_given), _only(ports), False


def _grant(token: bytes, record: Record, keys: HomeKeys, now: datetime) -> tokens.Grant:
    try:
        grant = tokens.read(keys, token.decode("ascii"))
    except ValueError as exc:
        raise Refused(403, UNAUTHENTICATED) from exc
    if grant.sandbox_id != record.id or grant.expires_at <= now:
        raise Refused(403, UNAUTHENTICATED)
    return grant


def _to_shell(request: RequestHead, port: int, until: datetime, *, used_subprotocol: bool) -> Passage:
    """A shell is spoken to by WebSocket, and nothing else passes with its token."""
    path = request.target.partition(b"?")[0]
    if not used_subprotocol or path not in _SHELL_PATHS or port not in (DEFAULT_PORT, SHELL_PORT):
        raise Refused(502)
    return Passage(0, used_subprotocol=True, until=until, is_shell=True)


def _has_no_ingress(record: Record) -> bool:
    region = record.image_arn.split(":")[3]
    return managed_connector(region, "NO_INGRESS") in record.ingress_connectors


def _suffix(offered: list[bytes], prefix: bytes, absent: bytes) -> bytes:
    found = [item.removeprefix(prefix) for item in offered if item.startswith(prefix)]
    return _only(found) if found else absent


def _only(values: list[bytes]) -> bytes:
    return values[0] if len(values) == 1 else b""


def _is_ours(item: bytes) -> bool:
    return item == SUBPROTOCOL or item.startswith((_AUTHENTICATION, _PORT))
