"""`exec` and `attach`: the command's bytes are ours to pass on, its exit code is ours to return."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.envfile import read_env_file
from sbxtui.cli.interrupts import Interrupts
from sbxtui.cli.jobs import find_job
from sbxtui.cli.killed import KILLED, KillWatch
from sbxtui.cli.stdin import read_stdin
from sbxtui.core.errors import CommandTimedOut, SbxError, Unsupported, UsageError
from sbxtui.core.jobs import Job
from sbxtui.core.model import ExecResult
from sbxtui.services.jobs import Command, OnOutput

_NOT_STARTED = (126, 127)
_LEAVE_S = 5.0


async def exec_(call: Call) -> int:
    """Run a command in a sandbox."""
    command = command_of(call)
    row = await call.services.sandboxes.find(call.args.sandbox)
    if call.args.detach:
        return _begun(call, await call.services.jobs.start(row, command, has_stdin=call.args.stdin))
    watch = KillWatch(call, row)
    with interrupts(call) as presses:
        result = await call.services.jobs.exec(
            row, command, stdin=stdin_of(call), on_output=writer_of(call), on_started=presses.job_started
        )
        killed = await watch.words(result)
    return finish(call, result, killed=killed)


async def attach(call: Call) -> int:
    """Take up a job that was begun before: its output, with -i its input, and its exit code."""
    job = await find_job(call)
    with interrupts(call) as presses:
        presses.job_started(job)
        try:
            result = await call.services.jobs.rejoin(
                job, cursor=call.args.start, stdin=stdin_of(call), on_output=writer_of(call)
            )
        except asyncio.CancelledError:
            # Only the second Ctrl-C; being ended by a signal of its own, an attached sbx leaves the job alone.
            if presses.is_left:
                await _kill(call, job)
            raise
    return finish(call, result)


def command_of(call: Call) -> Command:
    """The command of an `exec` or `run` line."""
    args = call.args
    if getattr(args, "tty", False):
        raise Unsupported("`sbx exec` has no terminals yet", hint="leave --tty out; -i passes input on")
    if not args.command:
        raise UsageError(f"`sbx {args.verb}` was given no command", hint=f"sbx {args.verb} … -- CMD [ARG…]")
    # For `run`, --env belongs to the sandbox, so that everything in it sees the same environment.
    env = environment_of(call) if args.verb == "exec" else {}
    return Command(argv=args.command, cwd=args.cwd, env=env, timeout_s=args.timeout, user=args.user)


def environment_of(call: Call) -> dict[str, str]:
    """The variables of `--env-file`s in their order, then of `--env`."""
    found: dict[str, str] = {}
    for file in call.args.env_file:
        found.update(read_env_file(Path(file)))
    return {**found, **dict(call.args.env)}


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


def finish(call: Call, result: ExecResult, *, killed: str = "") -> int:
    """Show what is left to show, and `killed`: what its sandbox's watchdog told of it. Returns the exit code."""
    if call.out.is_json:
        call.out.json(show.exec_json(result))
    if result.truncated:
        call.out.note("note: the guest could not keep all output; a part of it is missing")
    if result.lingering:
        call.out.note("note: the command ended, but something it started still runs and holds its output open")
    if result.exit_code == KILLED and not result.timed_out:
        guess = "killed with signal 9, as happens to what goes over the limits of its sandbox"
        call.out.note(f"note: {killed or guess}")
    if result.timed_out:
        timeout = getattr(call.args, "timeout", None)
        limit = f"{timeout:g} s" if timeout else "its limit"
        raise CommandTimedOut(f"the command did not end within {limit}; it was killed with all its children")
    return result.exit_code


def _begun(call: Call, job: Job) -> int:
    """A detached job: its id is the data; one that could not even be started ends as it would have in front."""
    call.out.line(job.id)
    call.out.result(show.job_json(job))
    if job.exit is None or job.exit.exit_code not in _NOT_STARTED:
        return 0
    call.out.note(f"note: it could not be started; `sbx output {job.sandbox} {job.id}` says why")
    return job.exit.exit_code


async def _kill(call: Call, job: Job) -> None:
    with contextlib.suppress(SbxError, TimeoutError):
        async with asyncio.timeout(_LEAVE_S):
            await call.services.jobs.signal(job, "KILL")
