"""Checking requests and answers against the service's own model.

botocore checks what is required and the minimums, not the maximums; a launch that must fail should fail before anything
is billed.
"""

from __future__ import annotations

from typing import Any

from sbxtui.core.errors import UsageError


def check_limits(client: Any, operation: str, parameters: dict[str, Any]) -> None:
    """Compare every value with the maximum its shape has in the client's model.

    Raises:
        UsageError: A value is too long or too large, named by its path.
    """
    shape = client.meta.service_model.operation_model(operation).input_shape
    if shape is not None:
        _check(shape, parameters, operation)


def is_answer(client: Any, operation: str, answer: dict[str, Any]) -> bool:
    """Whether a success holds anything of what the operation must answer, and is no web page.

    botocore reads a body that is no JSON as an empty answer; a list without items would then show everything as gone.
    """
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if "html" in headers.get("content-type", ""):
        return False
    shape = client.meta.service_model.operation_model(operation).output_shape
    required = shape.required_members if shape is not None else []
    return not required or any(member in answer for member in required)


def _check(shape: Any, value: Any, path: str) -> None:
    match shape.type_name:
        case "structure":
            for name, member in value.items():
                if name in shape.members:
                    _check(shape.members[name], member, f"{path}.{name}")
        case "list":
            _check_maximum(shape, len(value), path, "entries")
            for number, member in enumerate(value):
                _check(shape.member, member, f"{path}[{number}]")
        case "map":
            _check_maximum(shape, len(value), path, "entries")
        case "string":
            _check_maximum(shape, len(value), path, "characters")
        case "integer" | "long":
            _check_maximum(shape, value, path, "")


def _check_maximum(shape: Any, size: int, path: str, unit: str) -> None:
    maximum = shape.metadata.get("max")
    if maximum is not None and size > maximum:
        words = f"{size} {unit}".strip()
        raise UsageError(f"`{path}` has {words}, more than the {maximum} the platform takes", hint="make it smaller")
