"""Foreign errors as ours, by the table in `error_rows.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sbxtui.control.calls import Call
from sbxtui.control.error_rows import (
    ANSWERED,
    NO_AWS_ANSWER,
    NO_SUCH_ADDRESS,
    OTHERWISE,
    UNANSWERED,
    Row,
)
from sbxtui.control.retry import FINAL, RETRY_AFTER
from sbxtui.core.errors import AccessDenied, ImageNotFound, NotFound, SandboxNotFound, SbxError
from sbxtui.core.model import ContextKind
from sbxtui.core.regions import SERVED_REGIONS
from sbxtui.core.text import harmless_line

# Long runs of token-like characters: credentials and endpoint tokens look like this, words do not.
_SECRET_LIKE = re.compile(r"[A-Za-z0-9+/=_.\-%]{100,}")
_HTML = re.compile(r"\s*<(?:!doctype|html)", re.IGNORECASE)


def no_answer(call: Call) -> SbxError:
    """The error for a success that AWS did not send: a captive portal or a proxy answers 200 with a page of its own."""
    return _build(NO_AWS_ANSWER, call)


def translate(error: Exception, call: Call) -> SbxError:
    """Our error for one that botocore raised; the caller raises it `from` that one."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and "Error" in response:
        return _answered(error, response, call)
    names = [kind.__name__ for kind in type(error).__mro__]
    for name in names:
        for row in UNANSWERED:
            if name in row.codes:
                return _build(row, call, message=str(error))
    return SbxError(f"cannot {call}: {_clean(str(error))}", hint="run with --debug to see more")


def _answered(error: Exception, response: Mapping[str, Any], call: Call) -> SbxError:
    facts = response.get("Error") or {}
    code = str(facts.get("Code") or "")
    raw = facts.get("Message")
    message = "" if raw in (None, "None", code) else str(raw)
    metadata = response.get("ResponseMetadata") or {}
    status = int(metadata.get("HTTPStatusCode") or 0)
    details = _details(code, status, metadata, response)
    if code.startswith("AccessDenied") and not message and _is_unserved(call):
        return _unserved_region(call, details)
    if code.startswith("ResourceNotFound"):
        return _missing(call, message, details)
    # A 404 whose body is no error of AWS carries its status as the code.
    unfitting = NO_SUCH_ADDRESS if code == "404" else OTHERWISE
    row = next((row for row in ANSWERED if _fits(row, code, message)), unfitting)
    if row.is_private:
        # AWS quotes the signed request, session token included; the chained error must not carry it on.
        error.args = (f"{code} (its text is left out: it may quote credentials)",)
    is_unknown = row is OTHERWISE and status and status < 500
    final = {FINAL: True} if is_unknown else {}
    return _build(row, call, message=message, status=status or code, details={**details, **final})


def _fits(row: Row, code: str, message: str) -> bool:
    return code in row.codes and (not row.says or re.search(row.says, message, re.IGNORECASE) is not None)


def _is_unserved(call: Call) -> bool:
    context = call.context
    is_named = context.kind is ContextKind.AWS and context.region != "" and not context.endpoint_url
    return is_named and context.region not in SERVED_REGIONS


def _unserved_region(call: Call, details: Mapping[str, object]) -> SbxError:
    return AccessDenied(
        f"cannot {call}: region `{harmless_line(call.context.region)}` does not serve sandboxes",
        hint=f"sandboxes run in {', '.join(SERVED_REGIONS)}",
        details=details,
    )


def _missing(call: Call, message: str, details: Mapping[str, object]) -> SbxError:
    suffix = _suffix(message)
    if call.kind == "image":
        return ImageNotFound(
            f"cannot {call}: there is no such image, or it has no active version{suffix}",
            hint="`sbx image ls` lists images and their state; images belong to one region",
            details=details,
        )
    if call.kind == "log group":
        return NotFound(f"cannot {call}: there is no such group or stream{suffix}", details=details)
    return SandboxNotFound(
        f"cannot {call}: there is no such sandbox{suffix}",
        hint="`sbx ls --all` lists what exists; sandboxes belong to one region and account",
        details=details,
    )


def _details(code: str, status: int, metadata: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, object]:
    headers: Mapping[str, str] = metadata.get("HTTPHeaders") or {}
    details: dict[str, object] = {"aws_code": harmless_line(code, limit=100), "status": status}
    if request_id := metadata.get("RequestId"):
        details["request_id"] = harmless_line(str(request_id), limit=100)
    if quota := response.get("quotaCode"):
        details["quota"] = harmless_line(str(quota), limit=40)
    wait_s = headers.get("retry-after") or response.get("retryAfterSeconds")
    if wait_s is not None and str(wait_s).isdigit():
        details[RETRY_AFTER] = int(wait_s)
    return details


def _build(
    row: Row,
    call: Call,
    *,
    message: str = "",
    status: int | str = "",
    details: Mapping[str, object] | None = None,
) -> SbxError:
    details = dict(details or {})
    if row.is_final:
        details[FINAL] = True
    context = call.context
    quota = details.get("quota")
    words = {
        "message": "" if row.is_private else _suffix(message),
        "status": status,
        "service": call.service,
        "action": call.action,
        "profile": context.profile or "default",
        "profile_flag": f" --profile {context.profile}" if context.profile else "",
        "credentials": f"profile `{context.profile}`" if context.profile else f"context `{context.name}`",
        "endpoint": f"`{context.endpoint_url}`"
        if context.endpoint_url
        else f"AWS in `{context.region or 'its region'}`",
        "endpoint_hint": _endpoint_hint(call),
        "regions": ", ".join(SERVED_REGIONS),
        "quota": f"{quota} " if quota else "",
    }
    reason = row.reason.format_map(words)
    return row.error(f"cannot {call}: {reason}", hint=row.hint.format_map(words), details=details)


def _endpoint_hint(call: Call) -> str:
    if call.context.kind is ContextKind.LOCAL:
        return "`sbx local status` shows the local cloud; the next command starts it if it is down"
    if call.context.endpoint_url:
        return f"check the endpoint of context `{call.context.name}`: `sbx context ls`"
    return "check the network, and the region: `sbx context ls`"


def _suffix(message: str) -> str:
    cleaned = _clean(message)
    return f": {cleaned}" if cleaned else ""


def _clean(message: str) -> str:
    """A foreign message on one line, without markup, escapes, or anything that may be a secret."""
    if _HTML.match(message):
        return ""
    return harmless_line(_SECRET_LIKE.sub("…", message), limit=300).rstrip(".")
