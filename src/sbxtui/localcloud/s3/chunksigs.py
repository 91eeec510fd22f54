"""The signatures of an upload that is signed chunk by chunk: each is of the chunk and of the signature before it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from sbxtui.localcloud.faults import forbidden

SIGNED = "STREAMING-AWS4-HMAC-SHA256-"
_CHUNK, _TRAILER = "AWS4-HMAC-SHA256-PAYLOAD", "AWS4-HMAC-SHA256-TRAILER"
_NOTHING = hashlib.sha256(b"").hexdigest()


@dataclass(slots=True)
class ChunkChain:
    """Begins with the signature of the request's head. `sign` signs a text with the key of that; `timestamp` and
    `scope` are those of the head, too.
    """

    sign: Callable[[str], str]
    timestamp: str
    scope: str
    last: str

    def check_chunk(self, digest: str, told: str) -> None:
        """The next chunk, of that SHA-256; the one of no bytes is the last.

        Raises:
            Fault: 403, it was signed otherwise.
        """
        self._check(told, _CHUNK, _NOTHING, digest)

    def check_trailer(self, trailers: bytes, told: str) -> None:
        """What comes behind the last chunk: lines of `name:value`, each ended by a newline.

        Raises:
            Fault: 403, it was signed otherwise.
        """
        self._check(told, _TRAILER, hashlib.sha256(trailers).hexdigest())

    def _check(self, told: str, kind: str, *digests: str) -> None:
        expected = self.sign("\n".join((kind, self.timestamp, self.scope, self.last, *digests)))
        if not hmac.compare_digest(expected.encode(), told.encode("utf-8", "replace")):
            message = "The signature of a chunk does not match the one that was calculated of it."
            raise forbidden("SignatureDoesNotMatch", message)
        self.last = expected
