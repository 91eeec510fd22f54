"""The arithmetic of AWS Signature Version 4, as botocore's signer does it; keys that were derived are kept.

botocore derives a key and builds three objects for each request, which takes longer than to answer it. Tests compare
the two on whatever requests they can think of.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote

from botocore.utils import normalize_url_path

ALGORITHM = "AWS4-HMAC-SHA256"
_CONTENT_DIGEST = "x-amz-content-sha256"
_UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """What one secret signs with at an instant (`20260102T030405Z`), for a service in a region."""

    secret: str = field(repr=False)
    timestamp: str
    region: str
    service: str

    def sign(self, text: str) -> str:
        """The signature of a text, in hex."""
        key = _derived(self.secret, self.timestamp[:8], self.region, self.service)
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    def sign_request(
        self, method: str, path: str, query: str, headers: Mapping[str, Sequence[str]], body: bytes
    ) -> str:
        """The signature of a request.

        Args:
            method: In capital letters.
            path: As it was sent.
            query: As it was sent, without a signature.
            headers: Those that are signed, by their names in small letters.
            body: Of S3 it is not looked at: there its digest is told, or it is not signed.
        """
        is_s3 = self.service == "s3"
        canonical = (
            method,
            path if is_s3 else quote(normalize_url_path(path), safe="/~"),
            _sorted_query(query),
            *(f"{name}:{','.join(map(_trimmed, headers[name]))}" for name in sorted(headers)),
            "",
            ";".join(sorted(headers)),
            _content_digest(headers, body, is_s3=is_s3),
        )
        digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
        scope = f"{self.timestamp[:8]}/{self.region}/{self.service}/aws4_request"
        return self.sign(f"{ALGORITHM}\n{self.timestamp}\n{scope}\n{digest}")


@lru_cache(maxsize=64)
def _derived(secret: str, *scope: str) -> bytes:
    key = b"AWS4" + secret.encode()
    for word in (*scope, "aws4_request"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return key


def _sorted_query(query: str) -> str:
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&")) if query else []
    return "&".join(f"{key}={value}" for key, value in pairs)


def _content_digest(headers: Mapping[str, Sequence[str]], body: bytes, *, is_s3: bool) -> str:
    if told := headers.get(_CONTENT_DIGEST):
        return told[0]
    return _UNSIGNED if is_s3 else hashlib.sha256(body).hexdigest()


def _trimmed(value: str) -> str:
    return " ".join(value.split())
