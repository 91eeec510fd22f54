"""Running programs in a sandbox."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sbxtui import arguments
from sbxtui.api.opened import Opened

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExecOutput:
    """A finished command.

    `exit_code` is 128+n when signal n ended it, and 124 with `timed_out` when its time ran out. `truncated` says that
    some of its output was lost on the way, `oom` that it was killed for want of memory.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False
    oom: bool = False

    @property
    def stdout_text(self) -> str:
        """Standard output as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """Standard error as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stderr.decode("utf-8", "replace")


class Commands(Opened):
    """A sandbox that runs programs."""

    async def exec(
        self,
        cmd: str,
        args: Sequence[str] = (),
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        flush: bool = True,
    ) -> ExecOutput:
        """Run a program to its end; no shell is in between. Cancelling, or ctrl-C while it blocks, ends it.

        Args:
            cmd: The program.
            args: Its arguments.
            cwd: Its working folder; empty for the sandbox's.
            env: Laid over the sandbox's environment.
            timeout: Seconds of running time, after which it is killed with all its children.
            flush: Where a folder is synced, wait first until what was saved before is there.

        Raises:
            Conflict: The sandbox is suspended, or its sync is halted. GuestUnreachable: It does not answer.
        """
        from sbxtui.services.jobs import Command
        from sbxtui.services.sync.before import flushed

        services = self._services
        if flush and (left_out := await flushed(services.links, lambda: services.syncs, self._row)):
            log.warning("sandbox `%s`: %s", self.name, left_out)
        command = Command(argv=arguments.words(cmd, args), cwd=cwd, env=dict(env or {}), timeout_s=timeout)
        result = await services.jobs.exec(self._row, command)
        return ExecOutput(
            result.exit_code,
            result.stdout,
            result.stderr,
            timed_out=result.timed_out,
            truncated=result.truncated,
            oom=result.oom,
        )
