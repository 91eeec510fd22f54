"""The secrets of one home, made once: the key pair of its API, and the key that seals its opaque tokens. File 0600."""

from __future__ import annotations

import base64
import json
import logging
import os
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)

_NONCE_BYTES = 12
_TAG_BYTES = 16


@dataclass(frozen=True, slots=True)
class HomeKeys:
    """Everything a restart must find again, or tokens and clients of before would stop working."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    sealing_key: bytes = field(repr=False)
    created_at: datetime

    @property
    def key_id(self) -> str:
        """Names the sealing key without telling it."""
        return self.access_key_id[-8:].lower()


def load_or_make_keys(path: Path) -> HomeKeys:
    """The keys of a home; made, and written before they are used, when the file is missing or unreadable as JSON.

    Raises:
        OSError: The file can be neither read nor written.
    """
    try:
        return _from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError):
        log.warning("the key file %s is damaged; making new keys: clients must read cloud.json again", path)
        path.replace(path.with_suffix(".damaged"))
    raw = {
        "access_key_id": "AKIA" + base64.b32encode(secrets.token_bytes(10)).decode(),
        "secret_access_key": base64.b64encode(secrets.token_bytes(30)).decode(),
        "sealing_key": base64.b64encode(secrets.token_bytes(32)).decode(),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_private(path, json.dumps(raw), is_durable=True)
    return _from_json(raw)


def seal(key: bytes, plain: bytes, *, context: bytes) -> tuple[bytes, bytes, bytes]:
    """Encrypt under AES-256-GCM: nonce, ciphertext, tag. `context` must be given again to open it."""
    nonce = os.urandom(_NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, plain, context)
    return nonce, sealed[:-_TAG_BYTES], sealed[-_TAG_BYTES:]


def unseal(key: bytes, nonce: bytes, ciphertext: bytes, tag: bytes, *, context: bytes) -> bytes:
    """Undo `seal`.

    Raises:
        ValueError: It was not sealed with this key and context, or was changed.
    """
    if len(nonce) != _NONCE_BYTES or len(tag) != _TAG_BYTES:
        raise ValueError("not sealed by this home")
    try:
        return AESGCM(key).decrypt(nonce, ciphertext + tag, context)
    except InvalidTag as exc:
        raise ValueError("not sealed by this home") from exc


def encode_segment(raw: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_segment(text: str) -> bytes:
    """Undo `encode_segment`, strictly: one text per value, so that no altered spelling passes.

    Raises:
        ValueError: It is not the encoding of anything.
    """
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if encode_segment(raw) != text:
        raise ValueError("not canonical base64url")
    return raw


def _from_json(raw: dict[str, Any]) -> HomeKeys:
    sealing_key = base64.b64decode(raw["sealing_key"], validate=True)
    if len(sealing_key) != 32 or not raw["access_key_id"] or not raw["secret_access_key"]:
        raise ValueError("incomplete")
    return HomeKeys(
        raw["access_key_id"], raw["secret_access_key"], sealing_key, datetime.fromisoformat(raw["created_at"])
    )
