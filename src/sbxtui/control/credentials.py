"""Credentials that are ours to hand out: the local cloud's key pair. AWS credentials are never kept."""

from __future__ import annotations

from dataclasses import field

from sbxtui.core.values import dataclass


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """A key pair, maybe of a session; only the id is ever shown."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
