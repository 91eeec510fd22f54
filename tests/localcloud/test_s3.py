"""Uploads to the local S3 whose chunks are signed each."""

from __future__ import annotations

import base64
import hashlib
import hmac
import zlib

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sbxtui.localcloud.faults import Fault
from sbxtui.localcloud.s3.chunksigs import ChunkChain
from tests.localcloud.signed import Reply, raw_send
from tests.support.local_cloud import LocalCloud

EMPTY = hashlib.sha256(b"").hexdigest()


def signing_key(secret: str, date: str, region: str) -> bytes:
    """As AWS's documentation derives it."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def test_the_chunks_of_awss_own_example_are_signed_as_it_says() -> None:
    key = signing_key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1")
    chain = ChunkChain(
        lambda text: hmac.new(key, text.encode(), hashlib.sha256).hexdigest(),
        "20130524T000000Z",
        "20130524/us-east-1/s3/aws4_request",
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
    )
    for content, signature in (
        (b"a" * 65_536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
        (b"a" * 1_024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
        (b"", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
    ):
        chain.check_chunk(hashlib.sha256(content).hexdigest(), signature)
    with pytest.raises(Fault, match="SignatureDoesNotMatch"):
        chain.check_chunk(EMPTY, "0" * 64)


class _SignerOfChunks(S3SigV4Auth):  # type: ignore[misc]  # botocore has no types
    """Signs a head whose body comes in signed chunks."""

    def payload(self, request: AWSRequest) -> str:
        return "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"


def upload(cloud: LocalCloud, chunks: list[bytes], *, spoilt: int = -1, spoils_trailer: bool = False) -> Reply:
    """Put an object in signed chunks with a signed checksum behind them; one may be spoilt."""
    told, whole = cloud.told(), b"".join(chunks)
    headers = {
        "x-amz-decoded-content-length": str(len(whole)),
        "x-amz-trailer": "x-amz-checksum-crc32",
        "content-encoding": "aws-chunked",
    }
    request = AWSRequest(method="PUT", url=told["endpoint_url"] + "/chunks/key", data=b"", headers=headers)
    keys = Credentials(told["access_key_id"], told["secret_access_key"])
    _SignerOfChunks(keys, "s3", told["region"]).add_auth(request)
    timestamp = request.headers["X-Amz-Date"]
    last = request.headers["Authorization"].rpartition("=")[2]
    key = signing_key(told["secret_access_key"], timestamp[:8], told["region"])
    scope = f"{timestamp[:8]}/{told['region']}/s3/aws4_request"

    def signed(kind: str, *digests: str) -> str:
        text = "\n".join((f"AWS4-HMAC-SHA256-{kind}", timestamp, scope, last, *digests))
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    body = b""
    for number, chunk in enumerate([*chunks, b""]):
        last = signed("PAYLOAD", EMPTY, hashlib.sha256(chunk).hexdigest())
        content = b"?" + chunk[1:] if number == spoilt else chunk
        body += f"{len(chunk):x};chunk-signature={last}\r\n".encode() + content + (b"\r\n" if chunk else b"")
    checksum = base64.b64encode(zlib.crc32(whole).to_bytes(4, "big")).decode()
    trailer = f"x-amz-checksum-crc32:{checksum}"
    signature = "0" * 64 if spoils_trailer else signed("TRAILER", hashlib.sha256(f"{trailer}\n".encode()).hexdigest())
    body += f"{trailer}\r\nx-amz-trailer-signature:{signature}\r\n\r\n".encode()
    return raw_send(cloud, "PUT", "/chunks/key", body, dict(request.headers.items()))


def test_signed_chunks_are_taken_whole_and_refused_when_one_was_changed(cloud: LocalCloud) -> None:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket="chunks")
    chunks = [b"one" * 30_000, b"two", b"three"]
    assert upload(cloud, chunks).status == 200
    for reply in (upload(cloud, chunks, spoilt=1), upload(cloud, chunks, spoils_trailer=True)):
        assert (reply.status, b"<Code>SignatureDoesNotMatch</Code>" in reply.body) == (403, True)
    got = s3.get_object(Bucket="chunks", Key="key")
    assert (got["Body"].read(), "ContentEncoding" in got) == (b"".join(chunks), False)
