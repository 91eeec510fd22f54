"""The signature check: what botocore signs passes, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.localcloud.faults import Fault
from sbxtui.localcloud.signatures import SigningKey
from sbxtui.localcloud.sigv4 import HttpRequest, Verifier
from tests.localcloud.signed import raw_send, send
from tests.support.local_cloud import LocalCloud

LIST = "/2025-09-09/microvms"
TIMESTAMP = "20260102T030405Z"


def test_a_request_signed_by_botocore_passes(cloud: LocalCloud) -> None:
    reply = send(cloud, "GET", f"{LIST}?maxResults=5")
    assert (reply.status, json.loads(reply.body)) == (200, {"items": []})


def test_a_presigned_url_passes(cloud: LocalCloud) -> None:
    assert send(cloud, "GET", f"{LIST}?maxResults=5", is_presigned=True).status == 200


def test_percent_encoded_arns_in_the_path_pass(cloud: LocalCloud) -> None:
    path = "/2025-09-09/microvm-images/" + cloud.image_arn().replace(":", "%3A")
    assert send(cloud, "GET", path).status == 200


def test_an_unsigned_request_is_refused(cloud: LocalCloud) -> None:
    reply = raw_send(cloud, "GET", LIST, b"", {})
    assert (reply.status, reply.code) == (403, "MissingAuthenticationTokenException")


def test_a_preflight_gets_no_permission(cloud: LocalCloud) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    reply = raw_send(cloud, "OPTIONS", LIST, b"", headers)
    assert reply.status == 403
    assert not [name for name in reply.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"key": "AKIAXXXXXXXXXXXXXXXX"}, "UnrecognizedClientException"),
        ({"secret": "wrong"}, "InvalidSignatureException"),
        ({"token": "a-session"}, "UnrecognizedClientException"),
        ({"service": "sns"}, "InvalidSignatureException"),
        ({"region": "eu-west-3"}, "AccessDeniedException"),
        ({"region": "local-2"}, "InvalidSignatureException"),
    ],
)
@pytest.mark.parametrize("is_presigned", [False, True])
def test_other_credentials_are_refused(
    cloud: LocalCloud, changes: dict[str, str], code: str, is_presigned: bool
) -> None:
    reply = send(cloud, "GET", LIST, is_presigned=is_presigned, other=changes)
    assert (reply.status, reply.code) == (403, code)


def _replace(name: str, value: str) -> Callable[[AWSRequest], None]:
    def spoil(request: AWSRequest) -> None:
        del request.headers[name]
        request.headers[name] = value

    return spoil


def _authorization(old: str, new: str) -> Callable[[AWSRequest], None]:
    def spoil(request: AWSRequest) -> None:
        header = request.headers["Authorization"]
        assert old in header
        del request.headers["Authorization"]
        request.headers["Authorization"] = header.replace(old, new)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_authorization("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA1 "), "IncompleteSignatureException"),
        (_authorization("Signature=", "Sig="), "IncompleteSignatureException"),
        (_authorization("SignedHeaders=", "Signed="), "IncompleteSignatureException"),
        (_authorization("/aws4_request", ""), "IncompleteSignatureException"),
        (_authorization("host;", ""), "InvalidSignatureException"),
        (_authorization("host;", "host;x-gone;"), "InvalidSignatureException"),
        (_authorization("/lambda/aws4_request", "/lambda/aws5_request"), "InvalidSignatureException"),
        (_replace("Authorization", "Bearer abc"), "IncompleteSignatureException"),
        (_replace("X-Amz-Date", "20200101T000000Z"), "InvalidSignatureException"),
        (_replace("X-Amz-Date", "yesterday"), "IncompleteSignatureException"),
        (_replace("X-Amz-Content-SHA256", "UNSIGNED-PAYLOAD"), "InvalidSignatureException"),
        (_replace("X-Amz-Target", "added-on-the-way"), "InvalidSignatureException"),
        (_replace("X-Amz-Security-Token", "added"), "UnrecognizedClientException"),
        (_replace("Host", "evil.example"), "AccessDeniedException"),
    ],
)
def test_a_spoilt_header_is_refused(cloud: LocalCloud, spoil: Callable[[AWSRequest], None], code: str) -> None:
    reply = send(cloud, "GET", LIST, spoil=spoil)
    assert (reply.status, reply.code) == (403, code)


def test_another_body_query_method_or_path_is_refused(cloud: LocalCloud) -> None:
    body = json.dumps({"imageIdentifier": cloud.image_arn()}).encode()

    def other_body(request: AWSRequest) -> None:
        request.data = body.replace(b"512", b"8192")

    def other_query(request: AWSRequest) -> None:
        request.url += "&maxResults=6"

    assert send(cloud, "POST", LIST, body, spoil=other_body).code == "InvalidSignatureException"
    assert send(cloud, "GET", f"{LIST}?maxResults=5", spoil=other_query).code == "InvalidSignatureException"
    assert (
        send(cloud, "GET", f"{LIST}?maxResults=5", spoil=other_query, is_presigned=True).code
        == "InvalidSignatureException"
    )


def test_an_unsigned_payload_is_refused_even_when_the_header_is_signed(cloud: LocalCloud) -> None:
    reply = send(cloud, "GET", LIST, headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    assert (reply.status, reply.code) == (403, "InvalidSignatureException")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "0.0.0.0", ""]
)
def test_a_host_that_is_not_loopback_is_refused(cloud: LocalCloud, host: str) -> None:
    assert raw_send(cloud, "GET", LIST, b"", {"Host": host}).status in (400, 403)


@pytest.mark.parametrize("form", ["rest", "query"])
def test_sts_answers_with_its_own_codes(cloud: LocalCloud, form: str) -> None:
    body = (
        b"Action=GetCallerIdentity&Version=2011-06-15" if form == "query" else b"Action=AssumeRole&Version=2011-06-15"
    )
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    good = send(cloud, "POST", "/", body, headers=headers, other={"service": "sts"})
    assert good.status == (200 if form == "query" else 400)
    bad = send(cloud, "POST", "/", body, headers=headers, other={"service": "sts", "secret": "wrong"})
    assert bad.status == 403
    assert b"<Code>SignatureDoesNotMatch</Code>" in bad.body
    assert (
        b"<Code>InvalidClientTokenId</Code>"
        in send(cloud, "POST", "/", body, other={"service": "sts", "key": "AKIANONE"}).body
    )


def test_sts_tells_the_account(cloud: LocalCloud) -> None:
    identity = cloud.client("sts").get_caller_identity()
    assert identity["Account"] == cloud.told()["account_id"]


# The clock cannot be moved in a running process, so the time window is tested on the verifier itself.

NOW = datetime(2026, 10, 1, 12, 0, tzinfo=UTC)
VERIFIER = Verifier("AKIATEST", "secret", "local-1")


def _signed_at(instant: datetime) -> HttpRequest:
    from botocore.auth import SigV4Auth
    from botocore.credentials import Credentials

    request = AWSRequest(method="GET", url="http://127.0.0.1:1/2025-09-09/microvms")
    signer = SigV4Auth(Credentials("AKIATEST", "secret"), "lambda", "local-1")
    request.context["timestamp"] = instant.strftime("%Y%m%dT%H%M%SZ")
    request.headers["X-Amz-Date"] = request.context["timestamp"]
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signer._inject_signature_to_request(request, signer.signature(text, request))
    headers = [(name.lower(), value) for name, value in request.headers.items()] + [("host", "127.0.0.1:1")]
    return HttpRequest("GET", "/2025-09-09/microvms", "", headers, b"")


@pytest.mark.parametrize("offset_s", [-299, -1, 0, 1, 299])
def test_five_minutes_of_skew_pass(offset_s: int) -> None:
    VERIFIER.check(_signed_at(NOW + timedelta(seconds=offset_s)), "lambda", now=NOW)


@pytest.mark.parametrize(("offset_s", "words"), [(-301, "Signature expired"), (301, "Signature not yet current")])
def test_more_skew_is_refused(offset_s: int, words: str) -> None:
    with pytest.raises(Fault, match=words) as refused:
        VERIFIER.check(_signed_at(NOW + timedelta(seconds=offset_s)), "lambda", now=NOW)
    assert refused.value.body.code == "InvalidSignatureException"


@given(st.text(max_size=200))
def test_no_authorization_header_breaks_the_check(text: str) -> None:
    request = HttpRequest("GET", "/", "", [("host", "127.0.0.1"), ("authorization", text)], b"")
    with pytest.raises(Fault):
        VERIFIER.check(request, "lambda", now=NOW)


@given(st.text(max_size=200))
def test_no_query_breaks_the_check(text: str) -> None:
    request = HttpRequest("GET", "/", f"X-Amz-Algorithm=AWS4-HMAC-SHA256&{text}", [("host", "127.0.0.1")], b"")
    with pytest.raises(Fault):
        VERIFIER.check(request, "lambda", now=NOW)


WORDS = st.text(st.sampled_from("aZ0-._~/%+= :é,\t"), max_size=12)
SIGNED_NAMES = st.sampled_from(["host", "x-amz-date", "x-amz-content-sha256", "x-amz-meta-a", "content-type"])


@given(
    st.sampled_from(["lambda", "logs", "sts", "s3"]),
    st.text(st.sampled_from("aZ0-._~/%:+"), max_size=20).map("/{}".format),
    st.lists(st.tuples(WORDS, WORDS), max_size=4),
    st.lists(st.tuples(SIGNED_NAMES, WORDS), min_size=1, max_size=6),
    st.binary(max_size=20),
)
def test_signatures_are_botocores(
    service: str, path: str, pairs: list[tuple[str, str]], headers: list[tuple[str, str]], body: bytes
) -> None:
    query = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in pairs)
    asked = AWSRequest("POST", url=f"http://localhost{path}" + (f"?{query}" if query else ""), data=body)
    by_name: dict[str, list[str]] = {}
    for name, value in headers:
        asked.headers.add_header(name, value)
        by_name.setdefault(name, []).append(value)
    asked.context["timestamp"] = TIMESTAMP
    signer = (_OfS3 if service == "s3" else _OfAll)(Credentials("key", "secret"), service, "eu-west-1")
    wanted = signer.signature(signer.string_to_sign(asked, signer.canonical_request(asked)), asked)
    key = SigningKey("secret", TIMESTAMP, "eu-west-1", service)
    assert key.sign_request("POST", path, query, by_name, body) == wanted


class _OfAll(SigV4Auth):  # type: ignore[misc]  # botocore has no types
    """Signs exactly the headers it is given."""

    def headers_to_sign(self, request: AWSRequest) -> Any:
        return request.headers


class _OfS3(_OfAll):
    """As botocore does for S3 where it is not told to sign a payload."""

    def _normalize_url_path(self, path: str) -> str:
        return path

    def payload(self, request: AWSRequest) -> str:
        return "UNSIGNED-PAYLOAD"
