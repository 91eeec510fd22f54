"""The local cloud's side of a keeper: start one, find one again, ask it, and dial into its sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbxtui.core.errors import GuestUnreachable, RuntimeUnavailable
from sbxtui.localcloud.spec import ExitInfo, KeeperStatus, SandboxSpec, read_exit, write_private

START_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 10.0
DIAL_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class KeeperClient:
    """One sandbox's keeper. Holds no connection: every call opens its own, so any number of processes may use it at once."""

    keeper_socket: Path
    control_dir: Path
    sandbox_dir: Path

    async def status(self) -> KeeperStatus:
        """The sandbox now; from `exit.json` once the keeper is gone.

        Raises:
            GuestUnreachable: Neither a keeper nor an exit record answers.
        """
        return KeeperStatus.from_dict(await self._call({"op": "status"}))

    async def freeze(self) -> None:
        """Stop every process of the sandbox where it stands; it answers nothing until `thaw`. Frozen already: nothing happens."""
        await self._call({"op": "freeze"})

    async def thaw(self) -> None:
        """Undo `freeze`."""
        await self._call({"op": "thaw"})

    async def terminate(self, grace_s: float = 2.0) -> ExitInfo:
        """End the sandbox and remove all it had but `exit.json` and `keeper.log`; returns when that is done.

        Args:
            grace_s: Seconds the guest gets after TERM before everything is killed.
        """
        try:
            reply = await self._call({"op": "terminate", "grace_s": grace_s}, timeout_s=grace_s + START_TIMEOUT_S)
        except GuestUnreachable:
            return await self.wait_exit()
        return ExitInfo(**reply)

    async def wait_exit(self) -> ExitInfo:
        """Wait, without a deadline, until the sandbox has ended and its remains are gone.

        Raises:
            GuestUnreachable: The keeper died without a record.
        """
        try:
            return ExitInfo(**await self._call({"op": "wait"}, timeout_s=None))
        except GuestUnreachable:
            known = read_exit(self.sandbox_dir)
            if known is None:
                raise
            return known

    async def dial(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of the sandbox's own loopback; the caller closes the writer.

        Raises:
            ConnectionRefusedError: Nothing listens on that port inside.
            GuestUnreachable: The bridge does not answer (frozen, ended, or it put something else in its socket's place).
        """
        return await dial_bridge(self.control_dir, port)

    async def _call(self, request: Mapping[str, Any], *, timeout_s: float | None = CALL_TIMEOUT_S) -> dict[str, Any]:
        try:
            async with asyncio.timeout(timeout_s):
                return await _exchange(self.keeper_socket, request)
        except (OSError, ValueError, asyncio.IncompleteReadError) as exc:
            raise GuestUnreachable(
                f"the keeper at `{self.keeper_socket}` does not answer: {exc or type(exc).__name__}",
                hint="list the sandboxes again",
            ) from exc


async def start_keeper(spec: SandboxSpec) -> KeeperClient:
    """Start a detached keeper, and by it the sandbox; returns when the guest's bridge answers.

    The keeper lives on when the caller dies. Cancelling leaves it starting; `adopt_keeper` finds it.

    Raises:
        UsageError: The spec cannot be built.
        RuntimeUnavailable: The runtime is missing or refused, or the guest ended at once; the message holds the cause, the
            details the log's tail. Nothing is left running.
    """
    raise NotImplementedError


async def adopt_keeper(keeper_socket: Path) -> KeeperClient | None:
    """The keeper that listens there, or None if none answers; then `spec.read_exit` may tell how its sandbox ended."""
    raise NotImplementedError


async def dial_bridge(control_dir: Path, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """`KeeperClient.dial` by folder."""
    raise NotImplementedError
