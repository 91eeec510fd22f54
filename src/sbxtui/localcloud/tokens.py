"""Endpoint tokens and page tokens: opaque to clients, sealed under the home's key, so they survive restarts.

An endpoint token has the platform's shape: a compact JWE with direct AES-256-GCM, five parts, the second empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sbxtui.localcloud import faults
from sbxtui.localcloud.keys import HomeKeys, decode_segment, encode_segment, seal, unseal

MAX_TOKEN_CHARS = 8_000
_PAGE_CONTEXT = b"sbx-page-token-1"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token lets its holder do: reach these port ranges (both ends included) of one sandbox until then.

    One for a shell opens no port.
    """

    sandbox_id: str
    ranges: tuple[tuple[int, int], ...]
    expires_at: datetime
    is_shell: bool = False

    def allows_port(self, port: int) -> bool:
        """Whether the token names that port."""
        return any(first <= port <= last for first, last in self.ranges)


def mint(keys: HomeKeys, grant: Grant) -> str:
    """A token for a grant; nothing is stored."""
    header = encode_segment(json.dumps({"alg": "dir", "enc": "A256GCM", "kid": keys.key_id}).encode())
    plain = {"vm": grant.sandbox_id, "ports": grant.ranges, "exp": grant.expires_at.timestamp()}
    if grant.is_shell:
        plain["shell"] = True
    nonce, ciphertext, tag = seal(keys.sealing_key, json.dumps(plain).encode(), context=header.encode())
    return ".".join((header, "", encode_segment(nonce), encode_segment(ciphertext), encode_segment(tag)))


def read(keys: HomeKeys, token: str) -> Grant:
    """The grant of a token; its expiry is the caller's to check.

    Raises:
        ValueError: This home did not mint it, or it was changed.
    """
    parts = token.split(".")
    if len(parts) != 5 or parts[1] or len(token) > MAX_TOKEN_CHARS or not token.isascii():
        raise ValueError("not a token of this home")
    nonce, ciphertext, tag = (decode_segment(part) for part in parts[2:])
    plain = json.loads(unseal(keys.sealing_key, nonce, ciphertext, tag, context=parts[0].encode()))
    ranges = tuple((int(first), int(last)) for first, last in plain["ports"])
    return Grant(plain["vm"], ranges, datetime.fromtimestamp(plain["exp"], UTC), bool(plain.get("shell")))


def port_ranges(specifications: Iterable[dict[str, Any]]) -> tuple[tuple[int, int], ...]:
    """`allowedPorts` of CreateMicrovmAuthToken as ranges.

    Raises:
        Fault: A range ends before it starts.
    """
    ranges = []
    for item in specifications:
        if "port" in item:
            ranges.append((item["port"], item["port"]))
        elif "range" in item:
            first, last = item["range"]["startPort"], item["range"]["endPort"]
            if first > last:
                raise faults.validation(f"startPort {first} must not be greater than endPort {last}")
            ranges.append((first, last))
        else:
            ranges.append((1, 65_535))
    return tuple(ranges)


def page_token(keys: HomeKeys, operation: str, position: Sequence[str]) -> str:
    """An opaque token that goes on after `position` in the same operation."""
    nonce, ciphertext, tag = seal(keys.sealing_key, json.dumps([operation, *position]).encode(), context=_PAGE_CONTEXT)
    return encode_segment(nonce + tag + ciphertext)


def read_page_token(keys: HomeKeys, operation: str, token: str) -> tuple[str, ...]:
    """The position a page token stands for.

    Raises:
        Fault: 400, it was not given out by this operation of this home.
    """
    try:
        raw = decode_segment(token)
        plain = unseal(keys.sealing_key, raw[:12], raw[28:], raw[12:28], context=_PAGE_CONTEXT)
        made_for, *position = json.loads(plain)
    except ValueError as exc:
        raise faults.validation("Invalid nextToken") from exc
    if made_for != operation:
        raise faults.validation("Invalid nextToken")
    return tuple(position)
