"""Errors as tools tell them: a closed list of codes, and hints that name tools instead of command lines."""

from __future__ import annotations

import re

from sbxtui.core import errors
from sbxtui.core.errors import SbxError
from sbxtui.core.text import brief

INTERNAL = "internal"
CANCELLED = "cancelled"

# The first that fits counts.
_CODES: tuple[tuple[type[SbxError], str], ...] = (
    (errors.ConfirmationMissing, "confirm_required"),
    (errors.HostPathDenied, "host_path_denied"),
    (errors.UsageError, "invalid_argument"),
    (errors.NotFound, "not_found"),
    (errors.Unsupported, "unsupported"),
    (errors.Conflict, "conflict"),
    (errors.AddressInUse, "conflict"),
    (errors.AccessDenied, "access_denied"),
    (errors.CommandTimedOut, "timeout"),
    (errors.TimedOut, "timeout"),
    (errors.Unavailable, "backend_unavailable"),
    (errors.QuotaExceeded, "quota_exceeded"),
    (errors.PolicyDenied, "denied_by_policy"),
    (errors.Incomplete, "incomplete"),
    (errors.StoreError, "backend_unavailable"),
    (errors.Interrupted, CANCELLED),
)
CODES = frozenset({INTERNAL, *(code for _, code in _CODES)})

# What a verb of the command line is here.
_TOOLS = {
    "start": "sandbox_start",
    "stop": "sandbox_stop",
    "rm": "sandbox_remove",
    "ls": "sandbox_list",
    "ps": "sandbox_status",
    "create": "sandbox_create",
    "exec": "sandbox_exec",
    "attach": "sandbox_exec_poll",
    "output": "sandbox_exec_poll",
    "kill": "sandbox_exec_close",
    "image ls": "image_list",
    "doctor": "runtime_check",
}
_LINE = re.compile(r"`sbx (image ls|[a-z]+)[^`]*`")


def code_of(error: SbxError) -> str:
    """The code tools tell for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), INTERNAL)


def error_document(error: SbxError) -> dict[str, object]:
    """The `error` object of a reply."""
    return {
        "code": code_of(error),
        "message": brief(error.message),
        "hint": brief(_LINE.sub(_as_tool, error.hint)),
        "retryable": error.retryable,
        "details": error.details,
    }


def _as_tool(line: re.Match[str]) -> str:
    tool = _TOOLS.get(line[1])
    return f"`{tool}`" if tool else line[0]
