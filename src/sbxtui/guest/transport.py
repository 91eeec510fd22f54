"""One way to a guest: through the endpoint proxy with a token, or straight to a plain address."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from sbxguest import wire
from sbxtui.core.errors import GuestUnreachable, SbxError, Throttled
from sbxtui.guest.faults import garbled, head_of, raise_for_answer, token_refused, translated, whole_body
from sbxtui.guest.http1 import Answer, Body, Patience
from sbxtui.guest.pool import Pool, address_of

_PATIENCE = Patience()
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 2.0
_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "sbx"}
# What paths may hold besides letters and digits; `%` because they come quoted.
_PATH_SAFE = "/%:@!$&'()*+,;=?~"


class TokenSource(Protocol):
    """Where endpoint tokens of one sandbox come from."""

    async def token(self, *, refresh: bool = False) -> str:
        """A token's value; with `refresh` a new one, because the last was refused."""
        ...


def json_body(document: object) -> bytes:
    """JSON in ASCII: arguments that are no UTF-8 travel as lone surrogates, which UTF-8 refuses."""
    return json.dumps(document, separators=(",", ":")).encode()


def is_of_guest(answer: Answer) -> bool:
    """Whether an error comes from the guest itself and not from a proxy before it."""
    return wire.ERROR_HEADER in answer.headers


class Transport:
    """Requests to one guest. Close it, or use it in `async with`.

    Args:
        endpoint: `host[:port]`, dialled over TLS; or `http://host:port` or `unix:/path` for one without a proxy.
        tokens: Where endpoint tokens come from; None sends none.
        port: The guest's port, named to the proxy.
        verify: For TLS: how to check the endpoint, or False not to.
        revive: Called when nobody listens at the endpoint; the request fails all the same, and may be repeated.
        doubt: Asks whether there still is a sandbox behind a guest that does not answer; raises when there is none.
    """

    def __init__(
        self,
        endpoint: str,
        tokens: TokenSource | None,
        *,
        port: int = 8080,
        verify: ssl.SSLContext | bool = True,
        revive: Callable[[], Awaitable[None]] | None = None,
        doubt: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._tokens = tokens
        self._port = str(port)
        self._verify = verify
        self._revive = revive
        self._doubt = doubt
        self._opened: Pool | None = None

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def check_there(self) -> None:
        """Ask whether what does not answer still is there.

        Raises:
            SbxError: It is not, and why.
        """
        if self._doubt is not None:
            await self._doubt()

    async def close(self) -> None:
        """Close every connection."""
        if self._opened is not None:
            await self._opened.close()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Body = None,
        patience: Patience = _PATIENCE,
    ) -> AsyncIterator[Answer]:
        """One request whose answer is read as it comes; for its status see `check`.

        A token that the proxy (not the guest) refuses is renewed once, unless the body is streamed: that cannot be
        sent twice.

        Args:
            method: Of HTTP.
            path: On the guest, quoted.
            query: Of the address.
            headers: More headers.
            content: A body.
            patience: For every wait.

        Raises:
            HttpError: See `faults.translated`.
        """
        target = quote(path, safe=_PATH_SAFE) + (f"?{urlencode(query)}" if query else "")
        can_renew = self._tokens is not None and (content is None or isinstance(content, bytes))
        for is_renewed in (False, True):
            fields = {**_HEADERS, **(headers or {}), **await self._authentication(refresh=is_renewed)}
            async with self._pool().stream(method, target, fields, content, patience) as answer:
                if is_renewed or not (can_renew and answer.status == 403 and not is_of_guest(answer)):
                    yield answer
                    return

    async def _authentication(self, *, refresh: bool) -> dict[str, str]:
        if self._tokens is None:
            return {}
        token = await (self._tokens.token(refresh=True) if refresh else self._tokens.token())
        return {"x-aws-proxy-port": self._port, "x-aws-proxy-auth": token}

    def _pool(self) -> Pool:
        if self._opened is None:
            self._opened = Pool(address_of(self.endpoint, self._verify), self._revive)
        return self._opened

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
            timeout_s: For connecting, until the answer begins, and then for all of it; None is 30 s.

        Raises:
            SbxError: As `core.errors` says: a proxy's 403 is `AccessDenied`, its 429 `Throttled`, no answer
                `GuestUnreachable`.
        """
        patience = _PATIENCE if timeout_s is None else Patience(timeout_s, timeout_s, timeout_s)
        if document is not None:
            content = json_body(document)
        with translated(doing):
            async with self.stream(
                method, path, query=query, headers=headers, content=content, patience=patience
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

    async def check(self, answer: Answer, doing: str) -> None:
        """Raise what an answer other than success stands for."""
        if answer.status == 403 and not is_of_guest(answer):
            raise token_refused(self.endpoint, doing, await head_of(answer))
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
