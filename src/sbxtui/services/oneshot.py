"""Sandboxes that live for one command: `sbx run`.

Their row says so from before the launch, and names the process that runs the command. When that process died,
whichever sbx looks next ends the sandbox; a short maximum duration ends it even if none ever looks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sbxtui.core.errors import ConnectionLost, SandboxNotFound, SbxError
from sbxtui.core.jobs import Job
from sbxtui.core.model import ContextName, ExecResult, Registration
from sbxtui.services.attachment import Attachment
from sbxtui.services.jobs import Command, Jobs, OnOutput
from sbxtui.services.launch import CreateOptions, Launcher
from sbxtui.services.leftovers import ONE_SHOT, is_one_shot, is_orphan
from sbxtui.services.sandboxes import Sandboxes
from sbxtui.store.registry import Registry

log = logging.getLogger(__name__)

_DEFAULT_LIFE_S = 3_600
_SPARE_LIFE_S = 300
_LONGEST_LIFE_S = 28_800


async def _nothing(result: ExecResult) -> None:
    """It may go at once."""


class OneShots:
    """Runs commands in sandboxes made for them, and ends what dead runs left."""

    def __init__(
        self, context: ContextName, launcher: Launcher, sandboxes: Sandboxes, registry: Registry, jobs: Jobs
    ) -> None:
        self._context = context
        self._launcher = launcher
        self._sandboxes = sandboxes
        self._registry = registry
        self._jobs = jobs

    async def run(
        self,
        name: str | None,
        options: CreateOptions,
        command: Command,
        *,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        on_output: OnOutput | None = None,
        on_started: Callable[[Job], None] = lambda job: None,
        on_ended: Callable[[ExecResult], Awaitable[None]] = _nothing,
        on_progress: Callable[[str], None] = lambda words: None,
    ) -> ExecResult:
        """Create, run, remove; the sandbox is removed however this ends, cancelling included.

        Args:
            name: What to call the sandbox while it lives; None makes a name up.
            options: What it is to be.
            command: What to run in it.
            stdin: Bytes for its standard input; None gives it an empty one.
            on_output: Called with ("out", "err" or "pty", bytes) as output arrives; then the result carries none.
            on_started: Called with the job once it runs; never where the guest is an old one.
            on_ended: Called when the command has ended; the sandbox stays until this returns.
            on_progress: Called with what is being done.

        Raises:
            SbxError: As creating and running raise.
        """
        async with self._made(name, options, command, on_progress) as row:
            result = await self._jobs.exec(row, command, stdin=stdin, on_output=on_output, on_started=on_started)
            await on_ended(result)
            return result

    @asynccontextmanager
    async def begin(
        self,
        name: str | None,
        options: CreateOptions,
        command: Command,
        *,
        on_progress: Callable[[str], None] = lambda words: None,
    ) -> AsyncIterator[Attachment]:
        """Create, and take part in the command at once; the sandbox is removed however the block is left.

        Raises:
            SbxError: As creating and running raise.
        """
        async with (
            self._made(name, options, command, on_progress) as row,
            self._jobs.begin(row, command) as attachment,
        ):
            yield attachment

    @asynccontextmanager
    async def _made(
        self, name: str | None, options: CreateOptions, command: Command, on_progress: Callable[[str], None]
    ) -> AsyncIterator[Registration]:
        life_s = options.max_duration_s or _life_s(command.timeout_s)
        options = dataclasses.replace(options, max_duration_s=life_s, purpose=ONE_SHOT)
        row = await self._launcher.create(name, options, on_progress=on_progress, takes_back=True)
        try:
            yield row
        except ConnectionLost as exc:
            raise ConnectionLost(
                f"lost the connection to the command, and removed its sandbox `{row.name}`",
                hint="before running it again, make sure that twice does no harm",
                details=exc.details,
            ) from exc
        finally:
            await asyncio.shield(self._end(row))

    async def recover(self) -> list[Registration]:
        """Finish what dead processes began: launches are completed, one-shots ended. Returns the sandboxes that stay.

        What cannot be finished now stays a row for the next one who looks.
        """
        recovered = await self._launcher.recover()
        rows = await asyncio.to_thread(self._registry.list, self._context)
        for row in [*(row for row in recovered if is_one_shot(row)), *filter(is_orphan, rows)]:
            await self._end(row)
        return [row for row in recovered if not is_one_shot(row)]

    async def _end(self, row: Registration) -> None:
        try:
            # Two reapers may meet here: ending twice is harmless.
            with contextlib.suppress(SandboxNotFound):
                await self._sandboxes.remove(row)
        except SbxError as exc:
            log.warning("could not remove %s: %s", row.name, exc.message)


def _life_s(timeout_s: float | None) -> int:
    return min(_LONGEST_LIFE_S, round(timeout_s) + _SPARE_LIFE_S if timeout_s else _DEFAULT_LIFE_S)
