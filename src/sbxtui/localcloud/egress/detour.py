"""The proxy that this machine itself needs, where it needs one: asked for each host that its variables do not except.

Who looks a name up decides where it leads, and behind a proxy that is the proxy. So it is told names only of hosts that
a rule names, whose owner a person chose; for `internet` it is told the address that was looked up and checked here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed leaves it out

from sbxtui.core.heads import BadMessage, Head, RequestHead, parse_response
from sbxtui.core.hosts import THIS_MACHINE, authority
from sbxtui.localcloud.duplex import Duplex
from sbxtui.localcloud.egress.dialing import Resolve, Unreached, checked_addresses
from sbxtui.localcloud.relay import Cut, Source

_USUAL_PORT = 80


@dataclass(frozen=True, slots=True)
class HostProxy:
    """A proxy of this machine. `why_not` says why it cannot be used; then nothing can be reached that needs it."""

    host: str
    port: int
    credentials: str = field(default="", repr=False)
    why_not: str = ""

    @property
    def fields(self) -> tuple[tuple[bytes, bytes], ...]:
        """What says who asks."""
        if not self.credentials:
            return ()
        return ((b"Proxy-Authorization", b"Basic " + base64.b64encode(self.credentials.encode())),)


class Detour:
    """Which proxy leads to a host. `variables` as `urllib.request.getproxies_environment` tells them."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = dict(variables or {})

    def proxy_for(self, host: str, *, is_tunnel: bool) -> HostProxy | None:
        """The proxy, or None where the way is direct."""
        url = self._variables.get("https" if is_tunnel else "http", "")
        if not url or host == THIS_MACHINE or proxy_bypass_environment(host, self._variables):
            return None
        return _proxy_at(url)


async def host_to_name(host: str, resolve: Resolve, *, is_named: bool) -> str:
    """What a proxy is told for a host; `is_named`: a rule is about just it.

    Raises:
        Forbidden: It leads to an address that is not public, as seen from here.
        Unreached: Where it leads cannot be told here, and no rule names it.
    """
    try:
        addresses = await checked_addresses(host, resolve)
    except Unreached as exc:
        if is_named:
            return host
        why = "this machine cannot look it up, and leaves to its proxy only what a rule names"
        raise Unreached(why) from exc
    return host if is_named else str(addresses[0])


async def connected_to(proxy: HostProxy) -> Duplex:
    """A connection to the proxy.

    Raises:
        Unreached: It does not answer, or is none that is spoken to here.
    """
    if proxy.why_not:
        raise Unreached(proxy.why_not)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
        sock = socket.socket(found[0][0], socket.SOCK_STREAM)
        duplex = Duplex(sock)
        try:
            await loop.sock_connect(sock, found[0][4])
        except BaseException:
            duplex.close()
            raise
    except OSError as exc:
        raise Unreached(f"this machine's proxy does not answer: {exc.strerror or exc}") from exc
    return duplex


async def tunnelled(proxy: HostProxy, host: str, port: int) -> Duplex:
    """A connection through the proxy.

    Raises:
        Unreached: The proxy does not answer, or refuses.
    """
    duplex = await connected_to(proxy)
    place = authority(host, port).encode()
    head = Head(b"CONNECT %b HTTP/1.1" % place, ((b"Host", place), *proxy.fields))
    try:
        await duplex.send(head.to_bytes())
        source = Source(duplex)
        raw = await source.read_head()
        if raw is None:
            raise Unreached("this machine's proxy hung up")
        status = parse_response(raw, b"CONNECT").status
        if status != 200 or source.has_more:
            raise Unreached(f"this machine's proxy refuses it with {status}")
    except (OSError, Cut, BadMessage) as exc:
        duplex.close()
        raise Unreached("this machine's proxy gives no answer that can be read") from exc
    except BaseException:
        duplex.close()
        raise
    return duplex


def fetched_by(proxy: HostProxy, request: RequestHead, place: str) -> RequestHead:
    """A request as the proxy takes it that is to fetch it: with the whole address."""
    method, target, version = request.head.start.split(b" ")
    start = b" ".join((method, b"http://" + place.encode() + target, version))
    return replace(request, head=Head(start, (*request.head.fields, *proxy.fields)))


def _proxy_at(url: str) -> HostProxy:
    with contextlib.suppress(ValueError):
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http":
            return HostProxy("", 0, why_not=f"this machine's proxy is {parts.scheme}://, and only http:// is spoken")
        if parts.hostname:
            name, password = unquote(parts.username or ""), unquote(parts.password or "")
            return HostProxy(parts.hostname, parts.port or _USUAL_PORT, f"{name}:{password}" if name else "")
    return HostProxy("", 0, why_not="the proxy variables of this machine name none that can be understood")
