"""Every constraint of the model's inputs, broken once each: what clients do not check reaches the server (0.2)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sbxtui.localcloud.model import CORE, MICROVMS, routes, service_model
from sbxtui.localcloud.shapes import violations
from tests.localcloud.conformance.scene import Scene

WORDING = "0.3 Length/range violations use the Smithy wording"
_TEXTS = ("a", "arn:aws:iam::000000000000:role/r", "subnet-1", "sg-1", "alias/k")


@dataclass(frozen=True)
class Broken:
    """A request with one member that cannot be. `path` names the member as the server's message does."""

    service: str
    operation: str
    method: str
    target: str
    body: Mapping[str, Any] | None
    path: str
    constraint: str

    @property
    def id(self) -> str:
        """For the list of tests."""
        return f"{self.operation}-{self.path}-{self.constraint[:24]}".replace(" ", "_")

    def check(self, scene: Scene) -> None:
        """Send it: it is refused in the service's words."""
        reply = scene.raw(self.method, self.target, self.body)
        code = "ValidationException" if self.service == MICROVMS else "InvalidParameterValueException"
        assert (reply.status, reply.code) == (400, code), reply
        message = json.loads(reply.body)["message"]
        assert f"Value at '{self.path}' failed to satisfy constraint: {self.constraint}" in message


def broken_requests() -> Iterator[Broken]:
    """All of them."""
    for service in (MICROVMS, CORE):
        for route in routes(service):
            shape = service_model(service).operation_model(route.operation).input_shape
            if shape is None:
                continue
            whole = {name: sample(shape.members[name]) for name in shape.required_members}
            for name, member in shape.members.items():
                for value, path, constraint in _breaks(member, name, is_required=name in shape.required_members):
                    if _can_be_sent(member, value):
                        yield _request(service, route.operation, {**whole, name: value}, path, constraint)


def whole_request(service: str, operation: str) -> Broken:
    """A request in which nothing is broken: it reaches what does the operation."""
    shape = service_model(service).operation_model(operation).input_shape
    whole = {name: sample(shape.members[name]) for name in shape.required_members} if shape is not None else {}
    return _request(service, operation, whole, "", "")


def sample(shape: Any) -> Any:
    """A value that breaks nothing."""
    match shape.type_name:
        case "structure":
            names = shape.required_members or (list(shape.members)[:1] if shape.is_tagged_union else [])
            return {name: sample(shape.members[name]) for name in names}
        case "list":
            return [sample(shape.member)]
        case "map":
            return {"k": "v"}
        case "boolean":
            return True
        case "integer" | "long":
            return max(1, shape.metadata.get("min", 1))
        case _:
            return _text(shape)


def _text(shape: Any) -> str:
    candidates: tuple[str, ...] = (
        *(shape.enum or ()),
        *_TEXTS,
        "arn:aws:lambda:us-east-1:000000000000:microvm-image:i",
        "a" * 20,
    )
    return next(text for text in candidates if not list(violations(shape, text)))


def _breaks(shape: Any, path: str, *, is_required: bool) -> Iterator[tuple[Any, str, str]]:
    """Values that break one constraint of a member, or of what is in it."""
    if is_required:
        yield None, path, "Member must not be null"
    match shape.type_name:
        case "string":
            yield from _broken_texts(shape, path)
        case "integer" | "long":
            yield from _broken_numbers(shape, path)
        case "list":
            yield from _broken_lists(shape, path)
        case "structure":
            whole = {} if shape.is_tagged_union else sample(shape)
            for name, member in shape.members.items():
                is_needed = name in shape.required_members
                for value, inner, constraint in _breaks(member, f"{path}.{name}", is_required=is_needed):
                    yield {**whole, name: value}, inner, constraint


def _broken_numbers(shape: Any, path: str) -> Iterator[tuple[Any, str, str]]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if most is not None:
        yield most + 1, path, f"Member must have value less than or equal to {most}"
    if least is not None:
        yield least - 1, path, f"Member must have value greater than or equal to {least}"


def _broken_lists(shape: Any, path: str) -> Iterator[tuple[Any, str, str]]:
    if (most := shape.metadata.get("max")) is not None:
        yield [sample(shape.member)] * (most + 1), path, f"Member must have length less than or equal to {most}"
    for value, inner, constraint in _breaks(shape.member, f"{path}.1.member", is_required=False):
        yield [value], inner, constraint


def _broken_texts(shape: Any, path: str) -> Iterator[tuple[Any, str, str]]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if shape.enum:
        yield "NOT_ONE_OF_THEM", path, "Member must satisfy enum value set"
    if most is not None and most <= 10_000:
        yield "a" * (most + 1), path, f"Member must have length less than or equal to {most}"
    if least:
        yield "", path, f"Member must have length greater than or equal to {least}"
    if shape.metadata.get("pattern"):
        yield "\x7f :*\n", path, "Member must satisfy regular expression pattern"


def _can_be_sent(shape: Any, value: Any) -> bool:
    """An empty or missing part of a path is another path, and lists and nothing cannot be in a query."""
    location = shape.serialization.get("location")
    if location == "uri":
        return bool(value)
    return location is None or (value is not None and not isinstance(value, list))


def _request(service: str, operation: str, params: Mapping[str, Any], path: str, constraint: str) -> Broken:
    model = service_model(service).operation_model(operation)
    target, query, body = model.http["requestUri"], [], {}
    for name, value in params.items():
        serialization = model.input_shape.members[name].serialization
        label = serialization.get("name", name)
        match serialization.get("location"):
            case "uri":
                target = target.replace("{" + label + "}", quote(str(value), safe=""))
            case "querystring":
                values = value if isinstance(value, list) else [value]
                query += [f"{label}={quote(str(one), safe='')}" for one in values]
            case _ if value is not None:
                body[name] = value
    has_body = model.http["method"] in ("POST", "PUT", "PATCH")
    whole = f"{target}?{'&'.join(query)}" if query else target
    return Broken(service, operation, model.http["method"], whole, body if has_body else None, path, constraint)
