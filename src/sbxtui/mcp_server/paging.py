"""Long lists in parts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

from sbxtui.core.errors import UsageError
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param

_LIMIT = 50
LIMIT = Param("limit", Kind.WHOLE, "How many at most (50)", least=1, most=1_000)
CURSOR = Param("cursor", help="next_cursor of the last reply")

T = TypeVar("T")


def page(call: Call, found: Sequence[T]) -> tuple[Sequence[T], dict[str, object]]:
    """The part of a list that was asked for, and what a reply says of the rest.

    Raises:
        UsageError: The cursor is none of ours.
    """
    start = _start(call.args.text("cursor"))
    end = start + call.args.whole("limit", _LIMIT)
    more: dict[str, object] = {"total": len(found)}
    if end < len(found):
        more["next_cursor"] = base64.urlsafe_b64encode(f"at:{end}".encode()).decode()
    return found[start:end], more


def _start(cursor: str) -> int:
    if not cursor:
        return 0
    try:
        word, _, number = base64.urlsafe_b64decode(cursor).decode().partition(":")
        if word == "at" and number.isdecimal():
            return int(number)
    except (binascii.Error, ValueError):
        pass
    raise UsageError("`cursor` is none that was given", hint="send next_cursor of the last reply, or leave it out")
