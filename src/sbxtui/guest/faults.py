"""What a guest or the way to it answers instead of success, as our errors. One translation for every guest call."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sbxtui.core.errors import (
    AccessDenied,
    Conflict,
    FileMissing,
    GuestUnreachable,
    NotFound,
    QuotaExceeded,
    SbxError,
    Throttled,
    Unsupported,
    UntrustedEndpoint,
    UsageError,
)
from sbxtui.core.text import harmless_line
from sbxtui.guest.http1 import Answer, HttpError, HttpTimeout

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_BY_CODE: Mapping[str, type[SbxError]] = {
    "file_not_found": FileMissing,
    "unsupported": Unsupported,
    "method_not_allowed": Unsupported,
    "access_denied": AccessDenied,
    "disk_full": QuotaExceeded,
    "not_ready": GuestUnreachable,
}
_BY_STATUS: Mapping[int, type[SbxError]] = {
    400: UsageError,
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    405: Unsupported,
    409: Conflict,
    410: Conflict,
    413: UsageError,
    416: UsageError,
    422: UsageError,
    429: Throttled,
    502: GuestUnreachable,
    503: GuestUnreachable,
    504: GuestUnreachable,
    507: QuotaExceeded,
}
# A proxy passed the request on and no answer came; of the others it says that there was nobody to pass it on to.
_GATEWAY_TIMEOUT = 504
_HINTS = {"disk_full": "free some space in the sandbox, or launch one with a larger disk"}


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turns errors of HTTP in the block into GuestUnreachable; `doing` is what a person reads: "reading `a.txt`"."""
    try:
        yield
    except HttpTimeout as exc:
        raise GuestUnreachable(f"{doing}: the sandbox did not answer in time", hint="retrying is safe") from exc
    except HttpError as exc:
        if certificate := _certificate_fault(exc):
            raise UntrustedEndpoint(
                f"{doing}: the certificate of the sandbox's endpoint does not hold: {certificate}",
                hint="SSL_CERT_FILE names the authorities to trust; SBX_VERIFY_TLS=0 skips the check",
            ) from exc
        reason = harmless_line(str(exc)) or type(exc).__name__
        raise GuestUnreachable(f"{doing}: the connection to the sandbox broke: {reason}") from exc


def may_have_arrived(failure: SbxError) -> bool:
    """Whether a guest may have got the request that failed so, and done what it says."""
    if isinstance(failure, Throttled):
        return False
    if isinstance(failure.__cause__, HttpError):
        return failure.__cause__.was_sent
    return failure.details.get("http_status", _GATEWAY_TIMEOUT) == _GATEWAY_TIMEOUT


def _certificate_fault(error: BaseException | None) -> str:
    """What the TLS library said of a certificate, if that is why a connection failed; else empty."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return harmless_line(error.verify_message)
        error = error.__cause__ or error.__context__
    return ""


def garbled(what: str) -> GuestUnreachable:
    """The error for an answer that is not what the wire says."""
    return GuestUnreachable(f"the guest's answer makes no sense: {what}", hint="does a guest of sbx answer there?")


async def raise_for_answer(answer: Answer) -> None:
    """Raise the error an answer stands for; returns for 2xx. At most 64 KiB of an error's body are read."""
    if not answer.is_success:
        raise answered(answer.status, await head_of(answer))


def answered(status: int, body: bytes) -> SbxError:
    """The error that an answer other than success stands for."""
    said = _error_object(body)
    code = said.get("code") if isinstance(said.get("code"), str) else ""
    message = harmless_line(str(said.get("message") or "")) or f"the sandbox answered HTTP {status}"
    kind = _BY_CODE.get(str(code)) or _BY_STATUS.get(status, SbxError)
    hint = harmless_line(str(said.get("hint") or "")) or _HINTS.get(str(code), "")
    return kind(message, hint=hint, details={"guest_code": harmless_line(str(code)), "http_status": status})


def token_refused(endpoint: str, doing: str, body: bytes) -> AccessDenied:
    """The error for an endpoint's 403."""
    reason = harmless_line(body[:500].decode(errors="replace"))
    return AccessDenied(
        f"{doing}: the endpoint {endpoint} refused our token: {reason or 'no reason given'}",
        hint="check that your credentials may create endpoint tokens for this sandbox",
    )


async def whole_body(answer: Answer) -> bytes:
    """The body of a streamed answer, which a guest may make as long as it likes, and send as slowly.

    Raises:
        GuestUnreachable: It is longer than any answer that is held whole. HttpTimeout: It did not end in time.
    """
    body = bytearray()
    async for piece in answer.prompt_pieces():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise garbled(f"it is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


async def head_of(answer: Answer) -> bytes:
    """The first 64 KiB of a body at most."""
    head = bytearray()
    async for piece in answer.prompt_pieces():
        head += piece
        if len(head) >= _MAX_ERROR_BYTES:
            break
    return bytes(head[:_MAX_ERROR_BYTES])


def _error_object(body: bytes) -> dict[str, Any]:
    """The `error` of our own shape, else a `detail` or `message` as other servers and proxies write them."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    error = value.get("error")
    if isinstance(error, dict):
        return error
    return {"message": value.get("detail") or value.get("message") or ""}
