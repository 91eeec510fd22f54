"""What each sandbox may reach, on disk from before it holds until the sandbox has ended."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.egress import NO_NETWORK, NetworkPolicy, parse_network
from sbxtui.core.errors import UsageError
from sbxtui.localcloud.spec import write_private

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PolicyStore:
    """The folder of the policies: one small text file a sandbox; no file is no network."""

    directory: Path

    def load(self, sandbox_id: str) -> NetworkPolicy:
        """The policy of a sandbox; one that cannot be read opens nothing."""
        try:
            return parse_network(self._path(sandbox_id).read_text())
        except FileNotFoundError:
            return NO_NETWORK
        except (OSError, UnicodeDecodeError, UsageError) as exc:
            log.error("%s: its network policy cannot be read, so it has none: %s", sandbox_id, exc)
            return NO_NETWORK

    def has(self, sandbox_id: str) -> bool:
        """Whether one is kept."""
        return self._path(sandbox_id).exists()

    async def save(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        """Keep a policy; durable on return.

        Raises:
            OSError: The disk is full or read-only; the one before holds.
        """

        def write() -> None:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self._path(sandbox_id), policy.text, is_durable=True)

        await asyncio.to_thread(write)

    def forget(self, sandbox_id: str) -> None:
        """Remove it; missing already is fine."""
        self._path(sandbox_id).unlink(missing_ok=True)

    def _path(self, sandbox_id: str) -> Path:
        return self.directory / sandbox_id
