"""Requests that are sent again: what one asks for, apart from the token that makes it one request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_TOKENS = ("clientToken", "ClientToken")


def fingerprint(params: Mapping[str, Any]) -> str:
    """Equal for requests that ask for the same."""
    asked = {name: value for name, value in params.items() if name not in _TOKENS}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
