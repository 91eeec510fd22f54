"""`exec` and `attach`: the command's bytes are ours to pass on, its exit code is ours to return."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from sbxtui.cli.call import Call
from sbxtui.cli.ended import finish
from sbxtui.cli.envfile import read_env_file, with_own
from sbxtui.cli.interrupts import Interrupts
from sbxtui.cli.jobs import find_job
from sbxtui.cli.killed import KillWatch
from sbxtui.cli.output import stdout_is_terminal
from sbxtui.cli.stdin import read_stdin
from sbxtui.cli.terminal import check_terminal, run_on_terminal, terminal_size
from sbxtui.core.documents import job_json
from sbxtui.core.errors import SbxError, UsageError
from sbxtui.core.jobs import Job
from sbxtui.core.model import Registration
from sbxtui.services.jobs import Command, OnOutput
from sbxtui.services.sync.before import flushed

_NOT_STARTED = (126, 127)
_LEAVE_S = 5.0


async def exec_(call: Call) -> int:
    """Run a command in a sandbox."""
    command, is_lending = command_of(call), is_interactive_terminal(call)
    row = await call.services.sandboxes.find(call.args.sandbox)
    await _flush(call, row)
    if call.args.detach:
        return _begun(call, await call.services.jobs.start(row, command, has_stdin=call.args.stdin))
    if is_lending:
        return await run_on_terminal(call, call.services.jobs.begin(row, command))
    watch = KillWatch(call, row.id)
    with interrupts(call) as presses:
        result = await call.services.jobs.exec(
            row, command, stdin=stdin_of(call), on_output=writer_of(call), on_started=presses.job_started
        )
        killed = await watch.words(result)
    return finish(call, result, killed=killed)


async def _flush(call: Call, row: Registration) -> None:
    """What was saved in a synced folder before this command is there when the command runs."""
    if call.args.no_flush:
        return
    try:
        if left_out := await flushed(call.services.links, lambda: call.services.syncs, row):
            call.out.note(f"note: {left_out}")
    except SbxError as exc:
        exc.hint = f"{exc.hint}; or add --no-flush" if exc.hint else "add --no-flush to run it all the same"
        raise


async def attach(call: Call) -> int:
    """Take up a job that was begun before: its output, its input, and its exit code."""
    job = await find_job(call)
    start = call.args.start
    if job.has_terminal and sys.stdin.isatty() and not call.out.is_json:
        attaching = call.services.jobs.attach(job)
        is_plain = stdout_is_terminal() and not call.args.raw
        return await run_on_terminal(call, attaching, cursor=start, is_typing=not call.args.no_stdin, is_plain=is_plain)
    watch = KillWatch(call, job.sandbox_id)
    with interrupts(call) as presses:
        presses.job_started(job)
        try:
            async with call.services.jobs.attach(job) as attachment:
                stdin = None if call.args.no_stdin else stdin_of(call)
                result = await attachment.run(cursor=start or 0, stdin=stdin, on_output=writer_of(call))
        except asyncio.CancelledError:
            # Only the second Ctrl-C; being ended by a signal of its own, an attached sbx leaves the job alone.
            if presses.is_left:
                await _kill(call, job)
            raise
        killed = await watch.words(result)
    return finish(call, result, killed=killed)


def is_interactive_terminal(call: Call) -> bool:
    """Whether a command shall run on the terminal we have; `-t` alone gives it one that nobody types at.

    Raises:
        UsageError: We have none.
    """
    args = call.args
    if not (args.tty and args.stdin) or getattr(args, "detach", False):
        return False
    check_terminal(call, "leave -t out; -i passes input on")
    return True


def command_of(call: Call) -> Command:
    """The command of an `exec` or `run` line."""
    args = call.args
    if not args.command:
        raise UsageError(f"`sbx {args.verb}` was given no command", hint=f"sbx {args.verb} … -- CMD [ARG…]")
    # For `run`, --env belongs to the sandbox, so that everything in it sees the same environment.
    is_exec = args.verb == "exec"
    return Command(
        argv=args.command,
        cwd=args.cwd,
        env=environment_of(call) if is_exec else {},
        timeout_s=args.timeout,
        user=args.user,
        terminal=terminal_size() if args.tty else None,
    )


def environment_of(call: Call) -> dict[str, str]:
    """The variables of `--env-file`s in their order, then of `--env`."""
    found: dict[str, str] = {}
    for file in call.args.env_file:
        found.update(read_env_file(Path(file)))
    return found | with_own(call.args.env)


def interrupts(call: Call) -> Interrupts:
    """Ctrl-C for a command that runs: to its process group first, then to end it."""
    return Interrupts(lambda job: call.services.jobs.signal(job, "INT"))


def stdin_of(call: Call) -> AsyncIterator[bytes] | None:
    """Our standard input as the command's, if `--stdin` asks for it."""
    return read_stdin() if call.args.stdin else None


def writer_of(call: Call) -> OnOutput | None:
    """Pass output on as it arrives, at the reader's pace; under `--json` it is collected for the document instead."""
    if call.out.is_json:
        return None

    async def write(channel: str, data: bytes) -> None:
        await call.out.pass_on(data, is_stderr=channel == "err")

    return write


def _begun(call: Call, job: Job) -> int:
    """A detached job: its id is the data; one that could not even be started ends as it would have in front."""
    call.out.line(job.id)
    call.out.result(job_json(job))
    if job.exit is None or job.exit.exit_code not in _NOT_STARTED:
        return 0
    call.out.note(f"note: it could not be started; `sbx output {job.sandbox} {job.id}` says why")
    return job.exit.exit_code


async def _kill(call: Call, job: Job) -> None:
    with contextlib.suppress(SbxError, TimeoutError):
        async with asyncio.timeout(_LEAVE_S):
            await call.services.jobs.signal(job, "KILL")
