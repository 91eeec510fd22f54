"""Names to addresses to connections: looked up once, checked, and the checked address is the one that is dialled."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence

from sbxtui.core.hosts import THIS_MACHINE, Address, as_address, why_not_public
from sbxtui.localcloud.duplex import Duplex

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str], Awaitable[Sequence[Address]]]
Connect = Callable[[Address, int], Awaitable[Duplex]]

LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
_LOOKUPS = 4
_MAX_ADDRESSES = 6
_CONNECT_S = 5.0
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 20), (socket.TCP_KEEPCNT, 6))


class Forbidden(Exception):
    """The destination may be named but not reached: where its name leads is no business of a sandbox."""


class Unreached(Exception):
    """It could not be reached; the text says why."""


class Lookup:
    """Looks names up for one sandbox with the system's resolver, which blocks and cannot be stopped.

    So it runs in a few threads of the sandbox's own that nobody waits for at the end: slow ones hold up its own lookups
    only.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_LOOKUPS)

    async def __call__(self, host: str) -> Sequence[Address]:
        """All addresses of a name.

        Raises:
            OSError: It has none, or nobody answers.
        """
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Address]] = loop.create_future()

        def settle(found: Sequence[Address], error: Exception | None) -> None:
            self._free.release()
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(found)

        def act() -> None:
            found: Sequence[Address] = ()
            error: Exception | None = None
            try:
                # With its last dot a name is whole: the search list of this machine's network adds nothing to it.
                found = _look_up(f"{host}.")
            except (OSError, UnicodeError) as exc:
                error = exc
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, found, error)

        threading.Thread(target=act, name="sbx-lookup", daemon=True).start()
        return await future


def _look_up(name: str) -> list[Address]:
    infos = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    texts = [str(info[4][0]).partition("%")[0] for info in infos]
    return [ipaddress.ip_address(text) for text in dict.fromkeys(texts)]


async def checked_addresses(host: str, resolve: Resolve, *, is_any: bool = False) -> list[Address]:
    """The addresses of a host that a sandbox may reach, in the resolver's order; with `is_any` they need not be public.

    Raises:
        Forbidden: There are none but such as it may not reach.
        Unreached: The name leads nowhere.
    """
    if host == THIS_MACHINE:
        return [LOOPBACK]
    literal = as_address(host)
    try:
        found = [literal] if literal is not None else await resolve(host)
    except (OSError, UnicodeError) as exc:
        raise Unreached(f"the name cannot be resolved: {_words(exc)}") from exc
    if not found:
        raise Unreached("the name has no address")
    good = [one for one in found if is_any or not (why_not_public(one) or _is_of_this_machine(one))]
    if not good:
        raise Forbidden("it leads to an address that is not public")
    return good[:_MAX_ADDRESSES]


async def first_connection(addresses: Sequence[Address], port: int, connect: Connect) -> tuple[Duplex, Address]:
    """Dial checked addresses one after another.

    Raises:
        Unreached: None of them answers.
    """
    failure = "no address"
    for address in addresses:
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await connect(address, port), address
        except TimeoutError:
            failure = f"no answer within {_CONNECT_S:g} s"
        except OSError as exc:
            failure = _words(exc)
    raise Unreached(failure)


async def connect_directly(address: Address, port: int) -> Duplex:
    """A TCP connection to an address; no name is looked up any more.

    Raises:
        OSError: It fails.
    """
    sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    duplex = Duplex(sock)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer that vanished is noticed even where nobody sends.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        duplex.close()
        raise
    return duplex


def _is_of_this_machine(address: Address) -> bool:
    """Whether a public address is this machine's own: from inside, its firewall would not stand in between.

    Connecting a datagram socket sends nothing, and tells from which address the way begins.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(probe.getsockname()[0] == str(address))
    except OSError:
        return False


def _words(exc: OSError | UnicodeError) -> str:
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__
