"""`exec`: the command's bytes are ours to pass on, its exit code is ours to return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.stdin import read_stdin
from sbxtui.core.errors import CommandTimedOut, Unsupported, UsageError
from sbxtui.core.model import ExecResult
from sbxtui.services.jobs import Command, OnOutput

_KILLED = 128 + 9


async def exec_(call: Call) -> int:
    """Run a command in a sandbox."""
    command = command_of(call)
    row = await call.services.sandboxes.find(call.args.sandbox)
    result = await call.services.jobs.exec(row, command, stdin=stdin_of(call), on_output=writer_of(call))
    return finish(call, result)


def command_of(call: Call) -> Command:
    """The command of an `exec` or `run` line."""
    args = call.args
    if getattr(args, "tty", False):
        raise Unsupported("`sbx exec` has no terminals yet", hint="leave --tty out; -i passes input on")
    if not args.command:
        raise UsageError(f"`sbx {args.verb}` was given no command", hint=f"sbx {args.verb} … -- CMD [ARG…]")
    # For `run`, --env belongs to the sandbox, so that everything in it sees the same environment.
    env = dict(args.env) if args.verb == "exec" else {}
    return Command(argv=args.command, cwd=args.cwd, env=env, timeout_s=args.timeout, user=args.user)


def stdin_of(call: Call) -> AsyncIterator[bytes] | None:
    """Our standard input as the command's, if `--stdin` asks for it."""
    return read_stdin() if call.args.stdin else None


def writer_of(call: Call) -> OnOutput | None:
    """Pass output on as it arrives, at the reader's pace; under `--json` it is collected for the document instead."""
    if call.out.is_json:
        return None

    async def write(channel: str, data: bytes) -> None:
        await asyncio.to_thread(call.out.raw, data, is_stderr=channel == "err")

    return write


def finish(call: Call, result: ExecResult) -> int:
    """Show what is left to show; returns the exit code."""
    if call.out.is_json:
        call.out.json(show.exec_json(result))
    if result.lingering:
        call.out.note("note: the command ended, but something it started still runs and holds its output open")
    if result.exit_code == _KILLED and not result.timed_out:
        call.out.note("note: killed with signal 9, as happens to what goes over the limits of its sandbox")
    if result.timed_out:
        timeout = f"{call.args.timeout:g} s" if call.args.timeout else "its limit"
        raise CommandTimedOut(f"the command did not end within {timeout}; it was killed with all its children")
    return result.exit_code
