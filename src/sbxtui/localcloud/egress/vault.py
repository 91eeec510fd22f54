"""The secrets of sandboxes on disk: one encrypted file a sandbox, the key in a file of its own.

Who can read the whole home can decrypt them, as can whoever controls this user. What this keeps out is the rest: values
in a search, a backup of single files, a file that is sent along by mistake.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)

_KEY_NAME = "key"
_NONCE_BYTES = 12
# Two first secrets at once must not be sealed with two keys.
_making_key = threading.Lock()


@dataclass(frozen=True, slots=True)
class Vault:
    """The folder of the files."""

    directory: Path

    def load(self, sandbox_id: str) -> dict[str, Any]:
        """What was saved for a sandbox; nothing if there is none, or it cannot be read: no secret goes anywhere."""
        try:
            sealed = bytes.fromhex(self._path(sandbox_id).read_text())
            opened = AESGCM(self._key()).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], sandbox_id.encode())
            return dict(json.loads(opened))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, InvalidTag) as exc:
            log.error("%s: its secrets cannot be read, so it has none: %s", sandbox_id, type(exc).__name__)
            return {}

    async def save(self, sandbox_id: str, content: dict[str, Any]) -> None:
        """Keep them; durable on return.

        Raises:
            OSError: The disk is full or read-only; what was kept before is still there.
        """

        def write() -> None:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            nonce = os.urandom(_NONCE_BYTES)
            sealed = AESGCM(self._key()).encrypt(nonce, json.dumps(content).encode(), sandbox_id.encode())
            write_private(self._path(sandbox_id), (nonce + sealed).hex(), is_durable=True)

        await asyncio.to_thread(write)

    def forget(self, sandbox_id: str) -> None:
        """Remove them; missing already is fine."""
        self._path(sandbox_id).unlink(missing_ok=True)

    def _key(self) -> bytes:
        path = self.directory / _KEY_NAME
        with _making_key:
            if not path.exists():
                write_private(path, AESGCM.generate_key(256).hex(), is_durable=True)
        return bytes.fromhex(path.read_text())

    def _path(self, sandbox_id: str) -> Path:
        return self.directory / sandbox_id
