"""One connection out of a sandbox: one request, checked, then relayed or refused in words that a program can read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Protocol

from sbxtui.core.egress import NetworkPolicy
from sbxtui.core.heads import BadMessage, Head
from sbxtui.core.hosts import THIS_MACHINE, as_address, authority, why_not_public
from sbxtui.localcloud.duplex import TwoWay, abort
from sbxtui.localcloud.egress.asking import Asked, answer_head, read_opened, read_request
from sbxtui.localcloud.egress.detour import Detour, HostProxy, connected_to, fetched_by, host_to_name, tunnelled
from sbxtui.localcloud.egress.dialing import (
    Connect,
    Forbidden,
    Resolve,
    Streams,
    Unreached,
    checked_addresses,
    first_connection,
)
from sbxtui.localcloud.egress.log import NetworkLog
from sbxtui.localcloud.egress.opened import closed, take_tls
from sbxtui.localcloud.egress.secrets import SecretBook
from sbxtui.localcloud.egress.swap import Mask, MaskedWriter, Swapped, swapped
from sbxtui.localcloud.egress.tls import TlsDuplex, system_trust, tls_words
from sbxtui.localcloud.exchange import Exchange, Upstream, linger
from sbxtui.localcloud.relay import WRITE_BUFFER_BYTES, Cut, Source, write_to

log = logging.getLogger(__name__)

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds until this side gives up: on a request's head, a lookup, all dials of a request, silence while an answer
    is due, and silence in a tunnel.
    """

    head_s: float = 30.0
    lookup_s: float = 10.0
    dial_s: float = 15.0
    answer_s: float = 300.0
    tunnel_s: float = 3_600.0


class Rules(Protocol):
    """What a conversation needs to know of its sandbox; asked anew at each request."""

    @property
    def policy(self) -> NetworkPolicy:
        """What it may reach now."""
        ...

    @property
    def sandbox_id(self) -> str:
        """What people are told to name it by: its name may change, and then be another's; only their side knows it."""
        ...

    @property
    def log(self) -> NetworkLog:
        """Where to write down what it asks."""
        ...

    @property
    def secrets(self) -> SecretBook:
        """What its requests may carry, each where it may."""
        ...


@dataclass(frozen=True, slots=True)
class Ways:
    """How names are looked up and addresses dialled, whom to trust where TLS is ours, and where a proxy is needed.
    `own_sources` are hosts and ports, as `authority` writes them, that may be at any address.
    """

    resolve: Resolve
    connect: Connect
    patience: Patience = field(default_factory=Patience)
    trust: Callable[[], ssl.SSLContext] = system_trust
    detour: Detour = field(default_factory=Detour)
    own_sources: frozenset[str] = frozenset()


class Refusal(Exception):
    """An answer of the proxy itself. `action` is `refused` by the policy or for what it is, or `failed` on the way."""

    def __init__(self, status: int, code: str, message: str, hint: str = "", action: str = "refused") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.action = action


class Conversation:
    """Serve one connection, once. `cut` ends it from outside, as when the policy changes."""

    def __init__(self, rules: Rules, ways: Ways, streams: Streams) -> None:
        reader, self._writer = streams
        self._rules = rules
        self._ways = ways
        self._source = Source(reader)
        self._upstream: TwoWay | None = None
        # Of this machine, while it is to fetch what is asked.
        self._proxy: HostProxy | None = None
        self.asked: Asked | None = None
        self._writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def cut(self) -> None:
        """End both sides at once."""
        abort(self._writer.transport)
        if self._upstream is not None:
            self._upstream.close()

    async def serve(self) -> None:
        """Answer the one request. Nothing that either side does is raised."""
        try:
            await self._serve()
        except Refusal as refusal:
            await self._refuse(refusal)
        except (BadMessage, Cut, OSError) as exc:
            log.debug("a connection out of %s broke: %s", self._rules.sandbox_id, exc)
            abort(self._writer.transport)
        finally:
            if self._upstream is not None:
                self._upstream.close()
            self._writer.close()

    async def _serve(self) -> None:
        asked = self.asked = await self._read(read_request)
        if asked is None:
            return
        if not asked.host:
            await self._introduce(asked)
            return
        literal = as_address(asked.host)
        if literal is not None and why_not_public(literal):
            # Before the policy, which no rule could open for it: nobody is told to ask for one.
            raise _not_public(asked)
        if not self._rules.policy.allows(asked.host, asked.port):
            raise self._not_allowed(asked)
        self._proxy = self._ways.detour.proxy_for(asked.host, is_tunnel=asked.is_tunnel)
        self._upstream, address = await self._dial(asked)
        # It may have changed while the name was looked up.
        if not self._rules.policy.allows(asked.host, asked.port):
            raise self._not_allowed(asked)
        self._note("allowed", asked, address=address)
        if not asked.is_tunnel:
            await self._fetch(asked, self._upstream)
        elif self._rules.secrets.going_to(asked.host, asked.port, is_tls=True):
            await self._open(asked, self._upstream)
        else:
            await self._tunnel(asked, self._upstream)

    async def _read(self, read: Callable[[bytes], Asked]) -> Asked | None:
        try:
            async with asyncio.timeout(self._ways.patience.head_s):
                raw = await self._source.read_head()
            return read(raw) if raw is not None else None
        except TimeoutError:
            raise Refusal(408, "bad_request", "the request did not arrive in time") from None
        except BadMessage as exc:
            raise Refusal(exc.status, "bad_request", exc.why) from exc

    async def _dial(self, asked: Asked) -> tuple[TwoWay, str]:
        patience = self._ways.patience
        try:
            async with asyncio.timeout(patience.lookup_s + patience.dial_s):
                if self._proxy is not None:
                    return await self._dial_proxy(asked, self._proxy)
                async with asyncio.timeout(patience.lookup_s):
                    is_own = authority(asked.host, asked.port) in self._ways.own_sources
                    addresses = await checked_addresses(asked.host, self._ways.resolve, is_any=is_own)
                async with asyncio.timeout(patience.dial_s):
                    duplex, address = await first_connection(addresses, asked.port, self._ways.connect)
                return duplex, str(address)
        except Forbidden as exc:
            raise _not_public(asked) from exc
        except Unreached as exc:
            words = f"{_place(asked)} is not reached: {exc}"
            raise Refusal(502, "unavailable", words, "check the name and the port", "failed") from exc
        except TimeoutError:
            words = f"{_place(asked)} does not answer in time"
            raise Refusal(504, "timed_out", words, "try again later", "failed") from None

    async def _dial_proxy(self, asked: Asked, proxy: HostProxy) -> tuple[TwoWay, str]:
        """By the proxy this machine needs. What it is to fetch itself is asked of it with the whole address."""
        is_named = self._rules.policy.names(asked.host, asked.port)
        host = await host_to_name(asked.host, self._ways.resolve, is_named=is_named)
        told = f"{host} by this machine's proxy"
        if not asked.is_tunnel and is_named:
            return await connected_to(proxy), told
        self._proxy = None
        return await tunnelled(proxy, host, asked.port), told

    # Relaying

    async def _open(self, asked: Asked, upstream: TwoWay) -> None:
        """Between a program and a host that a secret may go to, TLS ends here and begins anew."""
        patience = self._ways.patience
        self._upstream = secured = TlsDuplex(upstream, self._ways.trust(), asked.host)
        try:
            async with asyncio.timeout(patience.dial_s):
                await secured.handshake()
        except (OSError, TimeoutError) as exc:
            words = f"{_place(asked)} is not spoken to: {tls_words(exc)}"
            raise Refusal(502, "unavailable", words, "a secret goes to a host this machine trusts", "failed") from exc
        context = await asyncio.to_thread(self._rules.secrets.authority.server_context, asked.host)
        try:
            reader, self._writer = await take_tls(self._writer, _ESTABLISHED, context, patience.head_s)
        except OSError as exc:
            self._note("failed", asked, reason=f"TLS with the program: {tls_words(exc)}")
            raise
        self._source = Source(reader)
        inner = await self._read(partial(read_opened, asked=asked))
        if inner is not None:
            self.asked = inner
            await self._fetch(inner, secured)
        await closed(self._writer)

    async def _tunnel(self, asked: Asked, upstream: TwoWay) -> None:
        await write_to(self._writer, _ESTABLISHED)
        started = time.monotonic()
        sent, received = _Meter(), _Meter()
        try:
            async with _silence(self._ways.patience.tunnel_s) as touch, asyncio.TaskGroup() as group:
                group.create_task(self._outward(upstream, sent, touch))
                group.create_task(self._inward(upstream, received, touch))
        except* (OSError, TimeoutError) as exc:
            log.debug("a tunnel of %s broke: %s", self._rules.sandbox_id, exc.exceptions[0])
            self.cut()
        finally:
            facts = {"sent_bytes": sent.total, "received_bytes": received.total}
            self._note("ended", asked, duration_s=round(time.monotonic() - started, 3), **facts)

    async def _outward(self, upstream: TwoWay, meter: _Meter, touch: Callable[[], None]) -> None:
        """Pass on what the program sends, then its end; to who takes no more, nothing: it may have said why."""
        while data := await self._source.read():
            touch()
            meter.total += len(data)
            try:
                await upstream.send(data)
            except OSError:
                return
        with contextlib.suppress(OSError):
            upstream.end()

    async def _inward(self, upstream: TwoWay, meter: _Meter, touch: Callable[[], None]) -> None:
        while data := await upstream.read():
            touch()
            meter.total += len(data)
            await write_to(self._writer, data)
        if self._writer.can_write_eof():
            self._writer.write_eof()

    async def _fetch(self, asked: Asked, upstream: TwoWay) -> None:
        has_answered = False

        def passed_on(head: Head) -> Head:
            nonlocal has_answered
            has_answered = True
            return mask.head(answer_head(head))

        try:
            swap = self._with_secrets(asked)
            mask, request = Mask(swap.needles), swap.request
            if self._proxy is not None:
                request = fetched_by(self._proxy, request, _place(asked))
            sink = MaskedWriter(self._writer, mask)
            async with _silence(self._ways.patience.answer_s) as touch:
                await Exchange(
                    request,
                    request.head,
                    self._source,
                    self._writer,
                    Upstream(asked.port, 0, upstream, time.monotonic()),
                    touch=touch,
                    # Other upgrades are not passed on, so no answer to one is.
                    answered_upgrade=mask.head if asked.is_websocket else answer_head,
                    passed_on=passed_on,
                    sink=sink if swap.keys else None,
                ).run()
        except TimeoutError:
            if has_answered:
                raise Cut("the destination fell silent") from None
            words = f"{_place(asked)} gave no answer in time"
            raise Refusal(504, "timed_out", words, "try again later", "failed") from None
        except BadMessage as exc:
            if has_answered:
                raise
            words = f"{_place(asked)}: {exc.why.replace('the guest', 'it')}" if exc.status == 502 else exc.why
            raise Refusal(exc.status, "bad_request", words, action="failed") from exc

    def _with_secrets(self, asked: Asked) -> Swapped:
        known = self._rules.secrets.going_to(asked.host, asked.port, is_tls=asked.is_tls)
        swap = swapped(asked.to_upstream(), known)
        if swap.keys:
            self._note("secret", asked, secrets=",".join(swap.keys))
        return swap

    # Answers of the proxy itself

    async def _introduce(self, asked: Asked) -> None:
        if asked.method not in ("GET", "HEAD") or asked.path != b"/":
            raise Refusal(
                400,
                "bad_request",
                "this is the sandbox's proxy, not a server",
                "GET / tells what may be reached; anything else is asked for by its full http:// address",
            )
        told = {"network": self._rules.policy.text, **self._whom_to_ask()}
        await self._answer(200, "OK", told, is_head=asked.method == "HEAD")

    def _not_allowed(self, asked: Asked) -> Refusal:
        policy = self._rules.policy
        why = (
            "it is not on this sandbox's list" if policy.words or policy.is_internet else "this sandbox has no network"
        )
        message = f"{_place(asked)} is not allowed: {why}"
        hint = f"the person who runs it can allow it: sbx network {self._rules.sandbox_id} --allow {_place(asked)}"
        return Refusal(403, "policy_denied", message, hint)

    async def _refuse(self, refusal: Refusal) -> None:
        asked = self.asked
        details = {"host": asked.host, "port": asked.port} if asked and asked.host else {}
        error = {
            "code": refusal.code,
            "message": refusal.message,
            "hint": refusal.hint,
            "retryable": refusal.action == "failed",
            "details": {**details, **self._whom_to_ask()},
        }
        self._note(refusal.action, asked, reason=refusal.message, status=refusal.status)
        with contextlib.suppress(OSError):
            is_head = asked is not None and asked.method == "HEAD"
            # Many programs show nothing of a refused CONNECT but this phrase.
            await self._answer(refusal.status, f"sbx: {refusal.message}", {"error": error}, is_head=is_head)

    def _whom_to_ask(self) -> dict[str, str]:
        sandbox_id = self._rules.sandbox_id
        return {"sandbox": sandbox_id, "how_to_ask": f"sbx network {sandbox_id} --allow HOST:PORT"}

    async def _answer(self, status: int, phrase: str, document: object, *, is_head: bool) -> None:
        content = json.dumps(document).encode() + b"\n"
        lines = [
            f"HTTP/1.1 {status} {phrase or HTTPStatus(status).phrase}",
            "Content-Type: application/json",
            "Cache-Control: no-store",
            f"Content-Length: {len(content)}",
            "Connection: close",
        ]
        head = "\r\n".join([*lines, "", ""]).encode("ascii", "replace")
        self._writer.write(head + (b"" if is_head else content))
        await linger(self._source, self._writer)

    def _note(self, action: str, asked: Asked | None, **facts: object) -> None:
        place = {"host": asked.host, "port": asked.port, "method": asked.method, "job": asked.job} if asked else {}
        self._rules.log.add(action, **{key: value for key, value in place.items() if value}, **facts)


@dataclass(slots=True)
class _Meter:
    total: int = 0


@contextlib.asynccontextmanager
async def _silence(limit_s: float) -> AsyncIterator[Callable[[], None]]:
    """Raises TimeoutError when what is given was not called for so long."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(limit_s) as deadline:
        yield lambda: deadline.reschedule(loop.time() + limit_s)


def _not_public(asked: Asked) -> Refusal:
    message = f"{_place(asked)} leads to an address that is not public"
    hint = f"only the public internet can be reached; the person who runs it can allow a port of theirs: {THIS_MACHINE}"
    return Refusal(403, "policy_denied", message, hint)


def _place(asked: Asked) -> str:
    return authority(asked.host, asked.port)
