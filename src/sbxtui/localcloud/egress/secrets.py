"""The secrets of one sandbox, in memory: what stands in for each inside, and which request may carry which.

A placeholder is made from the name and a number that is drawn once a sandbox: a secret that is taken back and given
again has the one it had, and programs that were started with it work again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sbxtui.core.secrets import SecretPlace, parse_places
from sbxtui.localcloud.egress.authority import SandboxAuthority, make_authority

_PLACEHOLDER_DIGITS = 40
_SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret. `placeholder` is all of it that is ever inside."""

    key: str
    value: str = field(repr=False)
    placeholder: str
    places: tuple[SecretPlace, ...]


class SecretBook:
    """Changes hold from the next request on. `salt` is hexadecimal; what is not given is drawn when it is needed."""

    def __init__(self, salt: str = "", authority: SandboxAuthority | None = None) -> None:
        self.salt = salt or os.urandom(_SALT_BYTES).hex()
        # One change at a time: a guest that does not answer holds up no other sandbox's.
        self.changing = asyncio.Lock()
        self._authority = authority
        self._secrets: dict[str, Secret] = {}

    @cached_property
    def authority(self) -> SandboxAuthority:
        """Whose certificates the sandbox trusts."""
        return self._authority or make_authority()

    def all(self) -> list[Secret]:
        """By name."""
        return [self._secrets[key] for key in sorted(self._secrets)]

    def get(self, key: str) -> Secret | None:
        """One by name."""
        return self._secrets.get(key)

    def made(self, key: str, value: str, places: tuple[SecretPlace, ...]) -> Secret:
        """A secret of this sandbox, not yet in the book."""
        digest = hmac.new(bytes.fromhex(self.salt), key.encode(), hashlib.sha256).hexdigest()
        return Secret(key, value, f"sbx_secret_{digest[:_PLACEHOLDER_DIGITS]}", places)

    def replace(self, secrets: Sequence[Secret]) -> None:
        """Have these and no others."""
        self._secrets = {secret.key: secret for secret in secrets}

    def going_to(self, host: str, port: int, *, is_tls: bool) -> list[Secret]:
        """What a request to this place may carry."""
        return [
            secret for secret in self.all() if any(place.covers(host, port, is_tls=is_tls) for place in secret.places)
        ]


def saved_secrets(secrets: Sequence[Secret]) -> dict[str, Any]:
    """Everything, values too: for the vault alone."""
    return {one.key: {"value": one.value, "places": [place.text for place in one.places]} for one in secrets}


def secrets_of(saved: Mapping[str, Any], book: SecretBook) -> list[Secret]:
    """Undo `saved_secrets`."""
    return [book.made(key, str(told["value"]), parse_places(told["places"])) for key, told in saved.items()]
