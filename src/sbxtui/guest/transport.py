"""One way to a guest: through the endpoint proxy with a token, or straight to a plain address. The home of httpx."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Protocol

import httpcore
import httpx

from sbxguest import wire
from sbxtui.core.errors import AccessDenied, GuestUnreachable, SbxError, Throttled
from sbxtui.core.text import harmless_line
from sbxtui.guest.faults import garbled, head_of, raise_for_answer, translated, whole_body

_TIMEOUT = httpx.Timeout(30.0, connect=10.0, pool=30.0)
# The smallest sandbox takes eight connections in all, and forwards and dashboards want theirs.
_LIMITS = httpx.Limits(max_connections=6, max_keepalive_connections=4, keepalive_expiry=45.0)
_BACKOFF_FIRST_S = 0.1
# httpcore's 64 KiB cut each read of the event loop into four, and copied the rest each time: half of the speed of a
# command's output.
httpcore.AsyncHTTP11Connection.READ_NUM_BYTES = 256 * 1024
_BACKOFF_MAX_S = 2.0


class TokenSource(Protocol):
    """Where endpoint tokens of one sandbox come from."""

    async def token(self, *, refresh: bool = False) -> str:
        """A token's value; with `refresh` a new one, because the last was refused."""
        ...


class _ProxyAuth(httpx.Auth):
    """Adds the proxy's headers; a token that the proxy (not the guest) refuses is renewed once."""

    def __init__(self, tokens: TokenSource, port: int) -> None:
        self._tokens = tokens
        self._port = port

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        request.headers["x-aws-proxy-port"] = str(self._port)
        request.headers["x-aws-proxy-auth"] = await self._tokens.token()
        answer = yield request
        # A body that is streamed cannot be sent twice; its caller sees the refusal.
        if answer.status_code == 403 and not is_of_guest(answer) and isinstance(request.stream, httpx.ByteStream):
            request.headers["x-aws-proxy-auth"] = await self._tokens.token(refresh=True)
            yield request


def json_body(document: object) -> bytes:
    """JSON in ASCII: arguments that are no UTF-8 travel as lone surrogates, which httpx's own encoding refuses."""
    return json.dumps(document, separators=(",", ":")).encode()


def is_of_guest(answer: httpx.Response) -> bool:
    """Whether an error comes from the guest itself and not from a proxy before it."""
    return wire.ERROR_HEADER in answer.headers


class Transport:
    """Requests to one guest. Close it, or use it in `async with`.

    Args:
        endpoint: `host[:port]`, dialled over TLS; or `http://host:port` or `unix:/path` for one without a proxy.
        tokens: Where endpoint tokens come from; None sends none.
        port: The guest's port, named to the proxy.
        verify: For TLS: how to check the endpoint, or False not to.
    """

    def __init__(
        self, endpoint: str, tokens: TokenSource | None, *, port: int = 8080, verify: ssl.SSLContext | bool = True
    ) -> None:
        self.endpoint = endpoint
        is_plain = endpoint.startswith(("http://", "unix:"))
        socket_path = endpoint.removeprefix("unix:") if endpoint.startswith("unix:") else None
        base_url = "http://guest" if socket_path else endpoint if is_plain else f"https://{endpoint}"
        self.http = httpx.AsyncClient(
            base_url=base_url,
            auth=None if tokens is None else _ProxyAuth(tokens, port),
            headers={"accept-encoding": "identity", "user-agent": "sbx"},
            timeout=_TIMEOUT,
            follow_redirects=False,
            trust_env=False,
            transport=httpx.AsyncHTTPTransport(
                verify=False if is_plain else verify, limits=_LIMITS, uds=socket_path, trust_env=False
            ),
        )

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self.http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        document: object = None,
        content: bytes | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """One request with a JSON answer.

        Args:
            method: Of HTTP.
            path: On the guest.
            doing: What a person reads when it fails: "starting a command".
            query: Of the address.
            headers: More headers.
            document: A JSON body.
            content: A body of bytes.
            timeout_s: For connecting and for each wait on the guest; None is 30 s.

        Raises:
            SbxError: As `core.errors` says: a proxy's 403 is `AccessDenied`, its 429 `Throttled`, no answer
                `GuestUnreachable`.
        """
        timeout = _TIMEOUT if timeout_s is None else httpx.Timeout(timeout_s)
        if document is not None:
            content = json_body(document)
        with translated(doing):
            async with self.http.stream(
                method, path, params=query, headers=headers, content=content, timeout=timeout
            ) as answer:
                await self.check(answer, doing)
                body = await whole_body(answer)
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as exc:
            raise garbled(f"{doing}: the answer is not JSON") from exc
        if not isinstance(value, dict):
            raise garbled(f"{doing}: the answer is not a JSON object")
        return value

    async def check(self, answer: httpx.Response, doing: str) -> None:
        """Raise what an answer other than success stands for."""
        if answer.status_code == 403 and not is_of_guest(answer):
            reason = harmless_line((await head_of(answer))[:500].decode(errors="replace"))
            raise AccessDenied(
                f"{doing}: the endpoint {self.endpoint} refused our token: {reason or 'no reason given'}",
                hint="check that your credentials may create endpoint tokens for this sandbox",
            )
        await raise_for_answer(answer)


class Backoff:
    """Growing pauses for requests that are safe to repeat, until `limit_s` after the first failure."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._pause_s = _BACKOFF_FIRST_S
        self._deadline_s: float | None = None

    def reset(self) -> None:
        """There was progress: the next failure is a first one."""
        self._pause_s = _BACKOFF_FIRST_S
        self._deadline_s = None

    async def wait(self, failure: SbxError) -> None:
        """Pause before the next try.

        Raises:
            SbxError: `failure` itself, when the time is up.
        """
        now_s = asyncio.get_running_loop().time()
        if self._deadline_s is None:
            self._deadline_s = now_s + self._limit_s
        left_s = self._deadline_s - now_s
        if left_s <= 0:
            raise failure
        await asyncio.sleep(min(left_s, self._pause_s * random.uniform(0.7, 1.0)))
        self._pause_s = min(self._pause_s * 2, _BACKOFF_MAX_S)


RETRYABLE = (GuestUnreachable, Throttled)
