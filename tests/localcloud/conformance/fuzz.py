"""Requests made from the model by chance: mostly what could be meant, with something wrong in most of them."""

from __future__ import annotations

import random
from typing import Any
from urllib.parse import quote

from sbxtui.localcloud.model import CORE, MICROVMS, routes, service_model
from tests.localcloud.conformance.shapes import sample

_WORDS = ("", "x", "..", "%2e%2e", "a/b", "\x00", "ü" * 40, "a" * 300, "arn:", "-1", "🦆", "{}", "null", "1.0", "'\"")
_ODD: tuple[Any, ...] = (None, True, -1, 0, 2**63, 1.5, [], {}, "x", [[]], {"a": {}})


class Fuzz:
    """Makes requests; the same seed makes the same ones. `known` are identifiers of things that are there."""

    def __init__(self, seed: int, known: list[str]) -> None:
        self._random = random.Random(seed)
        self._known = known
        self._operations = [(service, route) for service in (MICROVMS, CORE) for route in routes(service)]

    def request(self) -> tuple[str, str, Any]:
        """Method, raw path with query, and what is to be sent as JSON."""
        service, route = self._random.choice(self._operations)
        model = service_model(service).operation_model(route.operation)
        target, query, body = model.http["requestUri"], [], {}
        for name, member in (model.input_shape.members if model.input_shape else {}).items():
            is_left_out = name not in model.input_shape.required_members and self._random.random() < 0.6
            location, label = member.serialization.get("location"), member.serialization.get("name", name)
            if location == "uri":
                target = target.replace("{" + label + "}", quote(self._text(), safe="") or "x")
            elif is_left_out:
                continue
            elif location == "querystring":
                query += [
                    f"{label}={quote(str(self._value(member)), safe='')}" for _ in range(self._random.randint(1, 2))
                ]
            else:
                body[name] = self._value(member)
        has_body = model.http["method"] in ("POST", "PUT", "PATCH") or self._random.random() < 0.02
        path = f"{target}?{'&'.join(query)}" if query else target
        return model.http["method"], path, self._spoilt(body) if has_body else None

    def _value(self, shape: Any) -> Any:
        if self._random.random() < 0.15:
            return self._random.choice(_ODD)
        match shape.type_name:
            case "structure":
                return {
                    name: self._value(member) for name, member in shape.members.items() if self._random.random() < 0.7
                }
            case "list":
                return [self._value(shape.member) for _ in range(self._random.randint(0, 3))]
            case "map":
                return {self._text(): self._text() for _ in range(self._random.randint(0, 3))}
            case "string" if self._random.random() < 0.5:
                return self._text()
            case "integer" | "long":
                return self._random.choice((0, 1, 5, 60, 61, 512, 8080, 28_801, 2**31))
            case _:
                return sample(shape)

    def _text(self) -> str:
        return self._random.choice((*_WORDS, *self._known, *self._known))

    def _spoilt(self, body: dict[str, Any]) -> Any:
        return self._random.choice((b"{", b"[]", b"\xff", b"")) if self._random.random() < 0.03 else body
