"""Secrets put into one request in place of what stands for them, and taken out again of its answer.

Put in: into header values, user and password of Basic credentials among them, and into the request's target. Not into
bodies. Taken out: what comes back as it was sent, or percent-encoded, is overwritten with stars, so that an error page
or a debugging endpoint does not tell it. That is a courtesy of this side and no wall: a host that gives it back in
another form, or in the answer to another request, has told it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from sbxtui.core.heads import MAX_HEAD_BYTES, BadMessage, Head, RequestHead
from sbxtui.localcloud.egress.secrets import Secret

_UNTOUCHED = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade"))
_BASIC = re.compile(rb"(basic) +([A-Za-z0-9+/]+=*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Swapped:
    """A request with its secrets, and what its answer must not say. `keys` names what it carries."""

    request: RequestHead
    keys: tuple[str, ...] = ()
    needles: tuple[bytes, ...] = ()


def swapped(request: RequestHead, secrets: Sequence[Secret]) -> Swapped:
    """Put in what the request names.

    Raises:
        BadMessage: 431, it grew too long by that.
    """
    method, target, version = request.head.start.split(b" ")
    swap = _Swap(secrets)
    target = swap.in_target(target)
    fields = tuple(
        (name, value if name.lower() in _UNTOUCHED else swap.in_field(value)) for name, value in request.head.fields
    )
    if not swap.keys:
        return Swapped(request)
    # What is packed cannot be looked through.
    plain = Head(b" ".join((method, target, version)), fields).without(lambda name: name == b"accept-encoding")
    head = plain.plus((b"Accept-Encoding", b"identity"))
    if len(head.to_bytes()) > MAX_HEAD_BYTES:
        raise BadMessage(431, "the head is too long with its secrets")
    return Swapped(replace(request, head=head), tuple(sorted(swap.keys)), tuple(sorted(swap.needles)))


class _Swap:
    """One request's; `keys` and `needles` grow as it finds them."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._secrets = secrets
        self.keys: set[str] = set()
        self.needles: set[bytes] = set()

    def in_target(self, target: bytes) -> bytes:
        for secret in self._secrets:
            target = self._put(secret, target, quote(secret.value, safe="").encode())
        return target

    def in_field(self, value: bytes) -> bytes:
        value = _BASIC.sub(self._in_basic, value)
        for secret in self._secrets:
            value = self._put(secret, value, secret.value.encode())
        return value

    def _in_basic(self, match: re.Match[bytes]) -> bytes:
        """Credentials of user and password are packed, so what stands for a secret is not to be seen from outside."""
        try:
            inner = base64.b64decode(match[2], validate=True)
        except binascii.Error:
            return match[0]
        put = inner
        for secret in self._secrets:
            put = self._put(secret, put, secret.value.encode())
        if put == inner:
            return match[0]
        packed = base64.b64encode(put)
        self.needles.add(packed)
        return match[1] + b" " + packed

    def _put(self, secret: Secret, text: bytes, value: bytes) -> bytes:
        placeholder = secret.placeholder.encode()
        if placeholder not in text:
            return text
        self.keys.add(secret.key)
        self.needles |= {secret.value.encode(), quote(secret.value, safe="").encode()}
        return text.replace(placeholder, value)


class Mask:
    """Overwrites needles in an answer that comes in pieces; every piece keeps its length in the end."""

    def __init__(self, needles: Sequence[bytes]) -> None:
        # The longest first: one may be part of another.
        self._needles = sorted(needles, key=len, reverse=True)
        self._held = b""

    def whole(self, data: bytes) -> bytes:
        """All of a text at once."""
        for needle in self._needles:
            data = data.replace(needle, b"*" * len(needle))
        return data

    def head(self, head: Head) -> Head:
        """The head of an answer."""
        return Head(self.whole(head.start), tuple((name, self.whole(value)) for name, value in head.fields))

    def feed(self, data: bytes) -> bytes:
        """The next piece, less an end that may be the beginning of a needle."""
        data = self.whole(self._held + data)
        kept = max((self._begun(data, needle) for needle in self._needles), default=0)
        self._held = data[len(data) - kept :]
        return data[: len(data) - kept]

    def rest(self) -> bytes:
        """What was held back, once there is no more."""
        rest, self._held = self._held, b""
        return rest

    def _begun(self, data: bytes, needle: bytes) -> int:
        for length in range(min(len(needle) - 1, len(data)), 0, -1):
            if data.endswith(needle[:length]):
                return length
        return 0


class MaskedWriter:
    """A writer through a mask, for who writes and drains. `finish` once the answer is whole."""

    def __init__(self, writer: asyncio.StreamWriter, mask: Mask) -> None:
        self._writer = writer
        self._mask = mask

    def write(self, data: bytes) -> None:
        """As a StreamWriter's."""
        self._writer.write(self._mask.feed(data))

    async def drain(self) -> None:
        """As a StreamWriter's."""
        await self._writer.drain()

    def finish(self) -> None:
        """Write what was held back."""
        self._writer.write(self._mask.rest())
