"""Heads on their way through a sandbox's endpoint to a server that knows nothing of us, and back. Pure.

The endpoint insists on its own name as Host and on a token; the server behind it sees that name. What a page of this
machine says of itself (Origin, Referer) is said in that name, too, so that the server finds both equal; where it sends
a browser to that name, the browser is sent to this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sbxtui.core.heads import Head, RequestHead, ResponseHead, head_bytes

MARKER = b"lambda-microvms"
_OURS = b"x-aws-proxy-"
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te"})
# Said anew, or answered here.
_NOT_PASSED = _HOP_BY_HOP | {b"host", b"expect", b"forwarded"}
_OF_PAGE = frozenset({b"origin", b"referer"})
_FORGED = (_OURS, b"x-forwarded-")
_TO_OWN = frozenset({b"location", b"refresh", b"content-location"})
_NUMBER = b"x-amzn-requestid"
_BARE = frozenset({b"cache-control", b"connection", b"content-length", b"content-type", b"date"})
_SCHEMES = (b"http://", b"https://", b"ws://", b"wss://")


@dataclass(frozen=True, slots=True)
class Passport:
    """What opens a port of a sandbox: the endpoint's name as Host has it, the port, a token."""

    endpoint: bytes
    port: int
    token: bytes = field(repr=False)


def request_out(request: RequestHead, passport: Passport) -> bytes:
    """The head that the endpoint gets; the target goes on as it was written."""
    head = request.head
    hosts = head.values(b"host")
    own = hosts[0] if hosts else b""
    dropped = _NOT_PASSED | _named(head)
    fields: list[tuple[bytes, bytes]] = []
    for name, value in head.fields:
        key = name.lower()
        if key in dropped or key.startswith(_FORGED):
            continue
        fields.append((name, _renamed(value, own, passport.endpoint) if own and key in _OF_PAGE else value))
    if request.wants_upgrade:
        fields.append((b"Connection", b"Upgrade"))
    fields += [(b"Host", passport.endpoint)]
    if own:
        fields.append((b"X-Forwarded-Host", _asked_as(head, own, passport)))
    fields += [(b"X-Forwarded-Proto", b"http"), (b"X-Forwarded-For", b"127.0.0.1")]
    return head_bytes(head.start, _with_token(fields, request, passport))


def answer_back(response: ResponseHead, request: RequestHead, passport: Passport, is_kept: bool) -> bytes:
    """The head that the client gets.

    Args:
        response: Of the server or the endpoint.
        request: What it answers.
        passport: What that went out with.
        is_kept: Whether the client's connection goes on.
    """
    head = response.head
    hosts = request.head.values(b"host")
    own = hosts[0] if hosts else b""
    dropped = _HOP_BY_HOP | _named(head)
    is_switch = response.status == 101
    fields: list[tuple[bytes, bytes]] = []
    for name, value in head.fields:
        key = name.lower()
        if (key in dropped and not (is_switch and key == b"upgrade")) or key.startswith(_OURS):
            continue
        if key == b"sec-websocket-protocol" and value.strip() == MARKER:
            continue
        fields.append((name, _in_own_name(value, own, passport) if key in _TO_OWN and own else value))
    if is_switch:
        fields.append((b"Connection", b"Upgrade"))
    elif not response.is_interim and not is_kept:
        fields.append((b"Connection", b"close"))
    elif request.is_http10:
        fields.append((b"Connection", b"keep-alive"))
    return head_bytes(head.start, fields)


def is_endpoints_own(response: ResponseHead, body: bytes) -> bool:
    """Whether the endpoint may have refused a request by itself: it numbers its refusals, or says nothing at all.

    A server that refuses says why, or at least what kind of server it is.
    """
    head = response.head
    return bool(head.values(_NUMBER)) or (not body and all(name.lower() in _BARE for name, _ in head.fields))


def _named(head: Head) -> frozenset[bytes]:
    """What a head says is meant for the next hop only; framing and upgrades are ours to pass on."""
    if not head.values(b"connection"):
        return frozenset()
    named = frozenset(name.lower() for name in head.elements(b"connection"))
    return named - {b"upgrade", b"content-length", b"transfer-encoding", b"host", b"sec-websocket-protocol"}


def _in_own_name(value: bytes, own: bytes, passport: Passport) -> bytes:
    # `Refresh: 5; url=https://…` has it further behind.
    before, equals, url = value.rpartition(b"url=")
    return before + equals + _renamed(url, passport.endpoint, own)


def _asked_as(head: Head, own: bytes, passport: Passport) -> bytes:
    """The name a client used; where it says `Origin`, the one that has there by now, for servers compare the two."""
    origin = b"".join(head.values(b"origin")[:1])
    return own if _renamed(origin, own, passport.endpoint) == origin else passport.endpoint


def _renamed(url: bytes, old: bytes, new: bytes) -> bytes:
    """A URL of one authority as one of another; any other URL as it is."""
    for scheme in _SCHEMES:
        rest = url[len(scheme) :]
        if url[: len(scheme)].lower() == scheme and rest[: len(old)].lower() == old.lower():
            after = rest[len(old) :]
            if not after or after[:1] in b"/?#":
                return (b"ws://" if scheme.startswith(b"ws") else b"http://") + new + after
    return url


def _with_token(
    fields: list[tuple[bytes, bytes]], request: RequestHead, passport: Passport
) -> list[tuple[bytes, bytes]]:
    if not request.is_websocket:
        return [*fields, (b"X-aws-proxy-auth", passport.token), (b"X-aws-proxy-port", b"%d" % passport.port)]
    kept = [item for item in fields if item[0].lower() != b"sec-websocket-protocol"]
    own = [one for one in request.head.elements(b"sec-websocket-protocol") if not one.startswith(MARKER)]
    offered = [MARKER, MARKER + b".authentication." + passport.token, MARKER + b".port.%d" % passport.port, *own]
    return [*kept, (b"Sec-WebSocket-Protocol", b", ".join(offered))]
