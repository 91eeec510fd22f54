"""`exec --shell NAME`: a line in a pseudo-shell of the sandbox, whose folder and variables last until the next one."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator

from sbxtui.cli.call import Call
from sbxtui.cli.ended import finish, kill_and_leave
from sbxtui.cli.interrupts import Interrupts
from sbxtui.core.errors import SbxError, UsageError
from sbxtui.core.jobs import Job, TerminalSize
from sbxtui.core.model import Registration
from sbxtui.guest.jobs import new_job_id
from sbxtui.services.jobs import OnOutput

# A shell decides these itself, or they leave nobody to follow the line.
_NOT_FOR_LINES = ("cwd", "env", "env_file", "user", "detach")


def check_line(call: Call) -> None:
    """Check that the flags fit a line of a shell.

    Raises:
        UsageError: They do not.
    """
    args = call.args
    for name in _NOT_FOR_LINES:
        if getattr(args, name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"--shell and {flag} exclude each other", hint="write `cd` and `export` into a line")
    if args.tty and args.stdin:
        raise UsageError("--shell and -it exclude each other", hint="`sbx shell` opens a terminal")


async def run_line(
    call: Call,
    row: Registration,
    presses: Interrupts,
    *,
    on_output: OnOutput | None,
    terminal: TerminalSize | None,
    stdin: AsyncIterator[bytes] | None,
) -> int:
    """Run the words of the call as one line; returns the exit code. Several words are quoted, one is taken as it is."""
    words = call.args.command
    line = words[0] if len(words) == 1 else shlex.join(words)
    running: list[Job] = []
    line_id = new_job_id()

    def started(job: Job) -> None:
        running.append(job)
        presses.job_started(job)

    async with call.services.shells.open(row, call.args.shell) as shell:
        try:
            end = await shell.run(
                line,
                job_id=line_id,
                stdin=stdin,
                timeout_s=call.args.timeout,
                terminal=terminal,
                on_output=on_output,
                on_started=started,
            )
        except asyncio.CancelledError:
            if running:
                await kill_and_leave(call, running[0])
            else:
                with contextlib.suppress(SbxError):
                    await shell.cancel(line_id)
            raise
    if end.why:
        call.out.note(f"note: the shell stays as it was, in {end.cwd}: {end.why}")
    return finish(call, end.result, more={"shell": {"cwd": end.cwd, "kept": end.is_kept}})
