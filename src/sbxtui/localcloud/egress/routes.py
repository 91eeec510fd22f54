"""What the local cloud answers beside AWS's API, under `/sbx/v1/`: the network of a sandbox, its log, and secrets.

GET  /sbx/v1/sandboxes/ID/network                       what it may reach
PUT  /sbx/v1/sandboxes/ID/network   {"network": TEXT}   change that
GET  /sbx/v1/sandboxes/ID/network/log?after=N&wait=S    what it asked for
GET  /sbx/v1/sandboxes/ID/secrets                       what its requests may carry, without the values
PUT  /sbx/v1/sandboxes/ID/secrets/KEY   {"value": TEXT, "places": [TEXT]}   give one, or change what is named
DELETE /sbx/v1/sandboxes/ID/secrets/KEY                 take it back
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl

from sbxtui.localcloud import faults
from sbxtui.localcloud.egress.service import Egress
from sbxtui.localcloud.sigv4 import HttpRequest

MAX_WAIT_S = 20.0

_PATH = re.compile(r"/sbx/v1/sandboxes/([A-Za-z0-9-]{1,80})/network(/log)?")
_SECRETS = re.compile(r"/sbx/v1/sandboxes/([A-Za-z0-9-]{1,80})/secrets(?:/([A-Za-z0-9_]{1,128}))?")


class NetworkApi:
    """Answers requests whose signature was checked."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """The answer's document.

        Raises:
            Fault: What goes wrong, in the service's own shape.
        """
        if match := _SECRETS.fullmatch(request.raw_path):
            return await self._secrets(request, match[1], match[2])
        match = _PATH.fullmatch(request.raw_path)
        if match is None:
            raise faults.unknown_operation()
        sandbox_id, is_log = match[1], match[2] is not None
        if request.method == "GET" and is_log:
            query = dict(parse_qsl(request.query))
            after, wait_s = _number(query, "after"), min(_number(query, "wait"), MAX_WAIT_S)
            return await self._egress.entries(sandbox_id, after=int(after), wait_s=wait_s)
        if request.method == "GET":
            return self._egress.describe(sandbox_id)
        if request.method == "PUT" and not is_log:
            return await self._egress.change(sandbox_id, _network_of(request.body))
        raise faults.unknown_operation()

    async def _secrets(self, request: HttpRequest, sandbox_id: str, key: str | None) -> dict[str, Any]:
        if request.method == "GET" and key is None:
            return self._egress.secrets(sandbox_id)
        if request.method == "PUT" and key is not None:
            return await self._egress.give_secret(sandbox_id, key, _secret_of(request.body))
        if request.method == "DELETE" and key is not None:
            return await self._egress.take_back_secret(sandbox_id, key)
        raise faults.unknown_operation()


def _secret_of(body: bytes) -> dict[str, Any]:
    """What is wrong with it is told without a word of it."""
    try:
        told = dict(json.loads(body))
    except (ValueError, TypeError) as exc:
        raise faults.serialization("The body must be a JSON object") from exc
    places = told.get("places", [])
    if not isinstance(told.get("value", ""), str) or not isinstance(places, list):
        raise faults.serialization("`value` must be a string, and `places` a list")
    if not all(isinstance(place, str) for place in places):
        raise faults.serialization("`places` must be strings")
    return told


def _network_of(body: bytes) -> str:
    try:
        network = json.loads(body)["network"]
    except (ValueError, TypeError, KeyError) as exc:
        raise faults.serialization("The body must be a JSON object with `network`") from exc
    if not isinstance(network, str):
        raise faults.serialization("`network` must be a string")
    return network


def _number(query: dict[str, str], name: str) -> float:
    text = query.get(name, "0")
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise faults.validation(f"`{name}` must be a whole number")
    return int(text)
