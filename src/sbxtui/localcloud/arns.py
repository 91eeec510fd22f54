"""ARNs between regions: who knows AWS's regions only is answered as if the local cloud were in the one that is asked.

What is kept has one region; only what comes in and goes out is moved.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def moved(value: T, source: str, target: str) -> T:
    """A copy of a document whose ARNs of one region are of another."""
    if source == target:
        return value
    there: T = _moved(value, f"arn:aws:lambda:{source}:", f"arn:aws:lambda:{target}:")
    return there


def _moved(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new)
        case dict():
            return {_moved(key, old, new): _moved(item, old, new) for key, item in value.items()}
        case list() | tuple():
            return [_moved(item, old, new) for item in value]
    return value
