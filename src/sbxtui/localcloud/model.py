"""The API as botocore's service models describe it: which operation a request is, and its decoded input.

Routes come from every operation's method and URI, so nothing is routed that the model lacks. Path labels are split from
the raw path first and decoded after, because ARNs arrive with their colons and slashes percent-encoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

import botocore.loaders
import botocore.model

from sbxtui.localcloud import faults
from sbxtui.localcloud.shapes import check_input

MICROVMS, CORE = "lambda-microvms", "lambda-core"
CORE_PATHS = "/2026-04-04/network-connectors"

_VERSIONS = {MICROVMS: "2025-09-09", CORE: "2026-04-30"}
# Of the second service, only the network connectors have to do with sandboxes.
_PARTS = {MICROVMS: "", CORE: "NetworkConnector"}
_LABEL = re.compile(r"\{([A-Za-z]+)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """One operation's service, method and path template."""

    service: str
    operation: str
    method: str
    pattern: re.Pattern[str]
    labels: tuple[str, ...]


@cache
def service_model(service: str = MICROVMS) -> botocore.model.ServiceModel:
    """A service's model as this version of botocore ships it."""
    raw = botocore.loaders.Loader().load_service_model(service, "service-2", _VERSIONS[service])
    return botocore.model.ServiceModel(raw, service)


@cache
def routes(service: str = MICROVMS) -> tuple[Route, ...]:
    """All operations of a service; a request matches at most one of them."""
    model = service_model(service)
    names = (name for name in model.operation_names if _PARTS[service] in name)
    return tuple(_route(service, name, model.operation_model(name).http) for name in names)


def find_operation(method: str, raw_path: str) -> tuple[Route, dict[str, str]]:
    """The operation of a request and its decoded path labels.

    Raises:
        Fault: `UnknownOperationException`, or `ValidationException` for a label that is no UTF-8.
    """
    for route in routes(CORE if raw_path.startswith(CORE_PATHS) else MICROVMS):
        match = route.pattern.fullmatch(raw_path)
        if route.method == method and match:
            return route, {label: _decoded(match[label]) for label in route.labels}
    raise faults.unknown_operation()


def decode_input(route: Route, labels: Mapping[str, str], query: str, body: bytes) -> dict[str, Any]:
    """The operation's input as one dict of model members, checked against every constraint of the model.

    Raises:
        Fault: `SerializationException` or `ValidationException` in the service's own words.
    """
    shape = service_model(route.service).operation_model(route.operation).input_shape
    if shape is None:
        return {}
    params = _body_members(shape, body)
    params.update(_label_members(shape, labels))
    params.update(_query_members(shape, _query_pairs(query)))
    try:
        check_input(shape, params)
    except faults.Fault as exc:
        if route.service == CORE and exc.body.code == "ValidationException":
            raise faults.invalid_parameter(exc.body.message or "") from exc
        raise
    return params


def response_status(route: Route) -> int:
    """The status of a success, as the model says."""
    return int(service_model(route.service).operation_model(route.operation).http["responseCode"])


def _route(service: str, name: str, http: Mapping[str, Any]) -> Route:
    uri = http["requestUri"]
    pattern = "".join(part if index % 2 == 0 else f"(?P<{part}>[^/]+)" for index, part in enumerate(_LABEL.split(uri)))
    return Route(service, name, http["method"], re.compile(pattern), tuple(_LABEL.findall(uri)))


def _decoded(label: str) -> str:
    try:
        return unquote(label, errors="strict")
    except UnicodeDecodeError as exc:
        raise faults.validation("The request path is not UTF-8.") from exc


def _body_members(shape: botocore.model.StructureShape, body: bytes) -> dict[str, Any]:
    wanted = [name for name, member in shape.members.items() if "location" not in member.serialization]
    if not wanted or not body.strip():
        return {}
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise faults.serialization("Could not parse request body into json") from exc
    if not isinstance(document, dict):
        raise faults.serialization("Start of structure or map found where not expected.")
    return {name: document[name] for name in wanted if document.get(name) is not None}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _label_members(shape: botocore.model.StructureShape, labels: Mapping[str, str]) -> dict[str, str]:
    uri_names = {
        member.serialization.get("name", name): name
        for name, member in shape.members.items()
        if member.serialization.get("location") == "uri"
    }
    return {uri_names[label]: value for label, value in labels.items() if label in uri_names}


def _query_pairs(query: str) -> dict[str, list[str]]:
    pairs: dict[str, list[str]] = {}
    for piece in query.split("&"):
        key, _, value = piece.partition("=")
        if "=" in value:
            # Measured on the service: a raw `=` inside a token answers 400 with no message.
            raise faults.validation(None)
        try:
            pairs.setdefault(unquote(key), []).append(unquote(value.replace("+", " "), errors="strict"))
        except UnicodeDecodeError as exc:
            raise faults.validation("The query string is not UTF-8.") from exc
    return pairs


def _query_members(shape: botocore.model.StructureShape, pairs: Mapping[str, list[str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, member in shape.members.items():
        if member.serialization.get("location") != "querystring":
            continue
        texts = pairs.get(member.serialization.get("name", name))
        if texts is None:
            continue
        if member.type_name == "list":
            found[name] = texts
        else:
            found[name] = _integer(name, texts[-1]) if member.type_name in ("integer", "long") else texts[-1]
    return found


def _integer(name: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise faults.serialization(f"Value at '{name}' is not an integer")
    return int(text)
