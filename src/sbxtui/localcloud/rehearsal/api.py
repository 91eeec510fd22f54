"""What the local cloud answers of faults on purpose, under `/sbx/v1/faults`, beside AWS's API.

GET    /sbx/v1/faults                                              all rules
PUT    /sbx/v1/faults       {"kind", "operation", "rate", "seed", "amount", "times"}   one more
DELETE /sbx/v1/faults[/ID]                                         one away, or all
"""

from __future__ import annotations

import json
import re
from typing import Any

from sbxtui.localcloud import faults
from sbxtui.localcloud.rehearsal.rules import Kind, Rule, RuleBook
from sbxtui.localcloud.sigv4 import HttpRequest

PREFIX = "/sbx/v1/faults"
_PATH = re.compile(r"/sbx/v1/faults(?:/([a-z0-9]{1,20}))?")
_OPERATION = re.compile(r"[A-Za-z*]{1,64}")
_NUMBERS = {"rate": (1.0, 0.0, 1.0), "seed": (0, 0, 2**53), "amount": (0.0, -1e9, 1e9), "times": (0, 0, 10**9)}


class FaultApi:
    """Answers requests whose signature was checked."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """The answer's document.

        Raises:
            Fault: What goes wrong, in the service's own shape.
        """
        match = _PATH.fullmatch(request.raw_path)
        if match is None:
            raise faults.unknown_operation()
        if request.method == "GET" and match[1] is None:
            return {"faults": [_document(rule) for rule in self._book.all()]}
        if request.method == "PUT" and match[1] is None:
            return _document(self._add(request.body))
        if request.method == "DELETE":
            return self._remove(match[1])
        raise faults.unknown_operation()

    def _add(self, body: bytes) -> Rule:
        try:
            told = dict(json.loads(body))
            kind = Kind(told.get("kind", ""))
        except (ValueError, TypeError) as exc:
            raise faults.validation(f"`kind` must be one of {', '.join(Kind)}") from exc
        operation = told.get("operation", "*")
        if not isinstance(operation, str) or not _OPERATION.fullmatch(operation):
            raise faults.validation("`operation` is a name of an operation, `endpoint`, or a pattern with *")
        numbers = {name: _number(told, name) for name in _NUMBERS}
        if kind is Kind.CLOCK and (operation, numbers["rate"], numbers["times"]) != ("*", 1, 0):
            raise faults.validation("A clock is off for every call: `clock-jump` takes no operation, rate or times")
        return self._book.add(
            kind,
            operation,
            rate=numbers["rate"],
            seed=int(numbers["seed"]),
            amount=numbers["amount"],
            times=int(numbers["times"]),
        )

    def _remove(self, rule_id: str | None) -> dict[str, Any]:
        if rule_id is None:
            self._book.clear()
        elif not self._book.remove(rule_id):
            raise faults.not_found(f"There is no fault {rule_id}", "Fault", rule_id)
        return {}


def _number(told: dict[str, Any], name: str) -> float:
    usual, least, most = _NUMBERS[name]
    value = told.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise faults.validation(f"`{name}` must be a number from {least:g} to {most:g}")
    return float(value)


def _document(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "kind": rule.kind.value,
        "operation": rule.operation,
        "rate": rule.rate,
        "seed": rule.seed,
        "amount": rule.amount,
        "left": None if rule.left < 0 else rule.left,
        "fired": rule.fired,
    }
