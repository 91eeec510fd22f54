"""Checking AWS Signature Version 4 on every request.

A loopback port is open to every user and every web page of the machine; the key of the home is what keeps them out.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import parse_qsl

from sbxtui.core.regions import SERVED_REGIONS
from sbxtui.localcloud.faults import Fault, access_denied, forbidden
from sbxtui.localcloud.s3.chunksigs import SIGNED, ChunkChain
from sbxtui.localcloud.signatures import ALGORITHM, SigningKey

MAX_SKEW = timedelta(minutes=5)
MAX_PRESIGNED_S = 604_800

_TIMESTAMP = "%Y%m%dT%H%M%SZ"
_AUTHORIZATION = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]*)")
_AWS_REGION = re.compile(r"[a-z]{2}(-[a-z]+){1,2}-[0-9]")
_BAD_KEY = "The security token included in the request is invalid."
_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key "
    "and signing method. Consult the service documentation for details."
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it came in: the path still encoded, headers in order with lower-case names."""

    method: str
    raw_path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes = field(repr=False)

    def header(self, name: str) -> str:
        """The first value of a header; empty when absent."""
        return next((value for key, value in self.headers if key == name), "")


@dataclass(frozen=True, slots=True)
class Verifier:
    """The one key pair of a home and where its signatures must be scoped to."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    region: str

    def check(self, request: HttpRequest, service: str, *, now: datetime) -> str:
        """Refuse a request that our key did not sign, for this service, within the last five minutes.

        Whether the body is the signed one is the caller's to check where the service is S3: there it is a stream.

        Returns:
            The region it was signed for: ours, or one of AWS's, whose clients know no other.

        Raises:
            Fault: 403 with the code the service answers.
        """
        claim = _read_claim(request)
        codes = _CODES.get(service, _LAMBDA_CODES)
        if request.header("x-amz-security-token") or claim.session_token:
            raise forbidden(codes.unknown_key, _BAD_KEY)
        if not hmac.compare_digest(claim.access_key_id.encode(), self.access_key_id.encode()):
            raise forbidden(codes.unknown_key, _BAD_KEY)
        self._check_scope(claim, service, codes)
        _check_time(claim, codes, now)
        _check_signed_headers(request, claim, codes)
        if service != "s3":
            _check_payload(request, codes)
        expected = self._signature(request, claim)
        if not hmac.compare_digest(expected.encode(), claim.signature.encode("utf-8", "replace")):
            raise forbidden(codes.mismatch, _MISMATCH)
        if _is_unserved(claim.region):
            raise access_denied(None)
        return claim.region

    def chain_of(self, request: HttpRequest) -> ChunkChain | None:
        """Of a request that was checked, for S3: what its chunks are signed with; None where they are not signed."""
        if not request.header("x-amz-content-sha256").startswith(SIGNED):
            return None
        claim = _read_claim(request)
        return ChunkChain(self._key_of(claim).sign, claim.timestamp, claim.scope, claim.signature)

    def _check_scope(self, claim: _Claim, service: str, codes: _Codes) -> None:
        regions = {self.region, *SERVED_REGIONS}
        if claim.region not in regions and not (service == "lambda" and _is_unserved(claim.region)):
            raise forbidden(codes.mismatch, f"Credential should be scoped to a valid region, not '{claim.region}'. ")
        if claim.service != service:
            raise forbidden(codes.mismatch, f"Credential should be scoped to correct service: '{service}'. ")
        if claim.terminator != "aws4_request":
            raise forbidden(codes.mismatch, "Credential should be scoped with a valid terminator: 'aws4_request'. ")
        if claim.date != claim.timestamp[:8]:
            message = f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date: '{claim.date}'"
            raise forbidden(codes.mismatch, message)

    def _signature(self, request: HttpRequest, claim: _Claim) -> str:
        query = request.query if not claim.is_presigned else _without_signature(request.query)
        headers: dict[str, list[str]] = {}
        for name, value in request.headers:
            if name in claim.signed_headers:
                headers.setdefault(name, []).append(value)
        method = request.method.upper()
        return self._key_of(claim).sign_request(method, request.raw_path, query, headers, request.body)

    def _key_of(self, claim: _Claim) -> SigningKey:
        return SigningKey(self.secret_access_key, claim.timestamp, claim.region, claim.service)


@dataclass(frozen=True, slots=True)
class _Codes:
    unknown_key: str
    mismatch: str


_LAMBDA_CODES = _Codes("UnrecognizedClientException", "InvalidSignatureException")
_CODES = {
    "sts": _Codes("InvalidClientTokenId", "SignatureDoesNotMatch"),
    "s3": _Codes("InvalidAccessKeyId", "SignatureDoesNotMatch"),
}


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a request says of its own signature."""

    access_key_id: str
    date: str
    region: str
    service: str
    terminator: str
    signed_headers: tuple[str, ...]
    signature: str
    timestamp: str
    expires_s: int | None = None
    session_token: str = field(default="", repr=False)

    @property
    def is_presigned(self) -> bool:
        return self.expires_s is not None

    @property
    def scope(self) -> str:
        return "/".join((self.date, self.region, self.service, self.terminator))


def _read_claim(request: HttpRequest) -> _Claim:
    authorization = request.header("authorization")
    query = dict(parse_qsl(request.query, keep_blank_values=True)) if "X-Amz-" in request.query else {}
    if authorization and "X-Amz-Signature" in query:
        raise _incomplete("Found both 'X-Amz-Signature' as a query-string param and 'Authorization' as a header.")
    if authorization:
        return _header_claim(request, authorization)
    if "X-Amz-Signature" in query or "X-Amz-Algorithm" in query:
        return _query_claim(query)
    raise forbidden("MissingAuthenticationTokenException", "Missing Authentication Token")


def _header_claim(request: HttpRequest, authorization: str) -> _Claim:
    algorithm, _, rest = authorization.partition(" ")
    if algorithm != ALGORITHM:
        raise _incomplete(f"Unsupported AWS 'algorithm': '{algorithm[:40]}'.")
    parts = dict(_AUTHORIZATION.findall(rest))
    for name in ("Credential", "Signature", "SignedHeaders"):
        if not parts.get(name):
            raise _incomplete(f"Authorization header requires '{name}' parameter.")
    timestamp = request.header("x-amz-date") or _from_http_date(request.header("date"))
    if not timestamp:
        raise _incomplete("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
    return _claim(parts["Credential"], parts["SignedHeaders"], parts["Signature"], timestamp)


def _query_claim(query: Mapping[str, str]) -> _Claim:
    if query.get("X-Amz-Algorithm") != ALGORITHM:
        raise _incomplete("AWS query-string parameters must include a supported 'X-Amz-Algorithm'.")
    for name in ("X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-Date", "X-Amz-Expires"):
        if not query.get(name):
            raise _incomplete(f"AWS query-string parameters must include '{name}'.")
    expires = query["X-Amz-Expires"]
    if not re.fullmatch(r"[0-9]{1,6}", expires) or not 0 < int(expires) <= MAX_PRESIGNED_S:
        raise _incomplete("X-Amz-Expires must be between 1 and 604800 seconds.")
    return _claim(
        query["X-Amz-Credential"],
        query["X-Amz-SignedHeaders"],
        query["X-Amz-Signature"],
        query["X-Amz-Date"],
        expires_s=int(expires),
        session_token=query.get("X-Amz-Security-Token", ""),
    )


def _claim(
    credential: str,
    headers: str,
    signature: str,
    timestamp: str,
    *,
    expires_s: int | None = None,
    session_token: str = "",
) -> _Claim:
    scope = credential.split("/")
    if len(scope) != 5:
        raise _incomplete("Credential must have exactly 5 slash-delimited elements: keyid/date/region/service/term.")
    try:
        _instant(timestamp)
    except ValueError as exc:
        raise _incomplete("Date must be in ISO-8601 'basic format'.") from exc
    signed = tuple(headers.lower().split(";"))
    key_id, date, region, service, terminator = scope
    return _Claim(key_id, date, region, service, terminator, signed, signature, timestamp, expires_s, session_token)


def _check_time(claim: _Claim, codes: _Codes, now: datetime) -> None:
    signed_at = _instant(claim.timestamp)
    lifetime = timedelta(seconds=claim.expires_s) if claim.expires_s is not None else MAX_SKEW
    if now > signed_at + lifetime:
        shown, oldest = now.strftime(_TIMESTAMP), (now - lifetime).strftime(_TIMESTAMP)
        message = f"Signature expired: {claim.timestamp} is now earlier than {oldest} ({shown} - {_words(lifetime)}.)"
        raise forbidden(codes.mismatch, message)
    if signed_at > now + MAX_SKEW:
        shown, newest = now.strftime(_TIMESTAMP), (now + MAX_SKEW).strftime(_TIMESTAMP)
        message = (
            f"Signature not yet current: {claim.timestamp} is still later than {newest} ({shown} + {_words(MAX_SKEW)}.)"
        )
        raise forbidden(codes.mismatch, message)


def _check_signed_headers(request: HttpRequest, claim: _Claim, codes: _Codes) -> None:
    present = {name for name, _ in request.headers}
    if "host" not in claim.signed_headers:
        raise forbidden(codes.mismatch, "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.")
    # A header that steers the service and is not signed could have been added on the way.
    for name in sorted(present):
        if name.startswith("x-amz-") and name not in claim.signed_headers:
            raise forbidden(codes.mismatch, f"'{name}' must be a 'SignedHeader' in the AWS Authorization.")
    missing = [name for name in claim.signed_headers if name not in present]
    if missing:
        raise forbidden(codes.mismatch, f"The request lacks the signed header '{missing[0][:80]}'.")


def _check_payload(request: HttpRequest, codes: _Codes) -> None:
    declared = request.header("x-amz-content-sha256")
    if declared and declared != hashlib.sha256(request.body).hexdigest():
        raise forbidden(
            codes.mismatch,
            "The value of 'x-amz-content-sha256' is not the SHA-256 of the body; unsigned payloads are refused.",
        )


def _is_unserved(region: str) -> bool:
    """Whether AWS has such a region, and no MicroVMs there: it answers as if a permission were missing."""
    return _AWS_REGION.fullmatch(region) is not None and region not in SERVED_REGIONS


def _without_signature(query: str) -> str:
    return "&".join(pair for pair in query.split("&") if not pair.startswith("X-Amz-Signature="))


def _from_http_date(text: str) -> str:
    try:
        return parsedate_to_datetime(text).astimezone(UTC).strftime(_TIMESTAMP)
    except (TypeError, ValueError):
        return text


@lru_cache(maxsize=64)
def _instant(timestamp: str) -> datetime:
    return datetime.strptime(timestamp, _TIMESTAMP).replace(tzinfo=UTC)


def _words(lifetime: timedelta) -> str:
    seconds = int(lifetime.total_seconds())
    return f"{seconds // 60} min" if seconds % 60 == 0 else f"{seconds} s"


def _incomplete(message: str) -> Fault:
    return forbidden("IncompleteSignatureException", message)
