"""Tools that run one command and tell how it ended, or that it goes on."""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
from collections.abc import Sequence

from sbxtui.core.errors import UsageError
from sbxtui.core.model import Registration
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.clip import Clip
from sbxtui.mcp_server.creating import CREATE_PARAMS, options_of
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import INLINE_BYTES, Link, Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.mcp_server.watching import Running, Watched
from sbxtui.services.jobnotes import exit_of
from sbxtui.services.jobs import Command
from sbxtui.services.runnerctl import start_runner
from sbxtui.services.sync.before import flushed

_WAIT_MS = 45_000


async def exec_(call: Call) -> Reply:
    """Run a program with arguments."""
    return await _run(call, [call.args.text("command"), *call.args.words("args")])


async def shell(call: Call) -> Reply:
    """Run a line in the sandbox's shell."""
    return await _run(call, call.args.text("command"))


async def run(call: Call) -> Reply:
    """Make a sandbox for one command."""
    line, words = call.args.text("command"), call.args.words("args")
    # Its variables are the sandbox's, so that everything in it sees the same.
    command = dataclasses.replace(command_of(call, [line, *words] if words else line), env={})
    options = options_of(call)
    out, err = Clip(_keep(call)), Clip(_keep(call))

    async def take(channel: str, data: bytes) -> None:
        (err if channel == "err" else out).add(data)

    # If this process is killed, the runner ends the sandbox.
    await asyncio.to_thread(start_runner, call.settings.home)
    name = call.args.text("name") or None
    result = await call.services.one_shots.run(
        name, options, command, stdin=stdin_of(call), on_output=take, on_progress=call.telling()
    )
    return reply_of(call, Watched(out, err, exit=exit_of(result)))


def command_of(call: Call, argv: Sequence[str] | str, *, is_bounded: bool = True) -> Command:
    """The command of a call; `is_bounded` gives it the default timeout where none was asked for."""
    args = call.args
    if "timeout_ms" in args and "timeout" in args:
        raise UsageError("`timeout` and `timeout_ms` are the same", hint="send one of them")
    default_ms = call.settings.mcp_default_timeout_ms if is_bounded else 0
    timeout_ms = args.whole("timeout") * 1000 or args.whole("timeout_ms", default_ms)
    return Command(argv, args.text("cwd"), args.variables("env"), timeout_ms / 1000 or None, args.text("user"))


async def see_saved(call: Call, row: Registration) -> None:
    """Wait until what the person saved in a synced folder is there."""
    if left_out := await flushed(call.services.links, lambda: call.services.syncs, row):
        call.warnings.append(left_out)


def stdin_of(call: Call) -> bytes | None:
    """Input for a command; None when there is none."""
    if "stdin" in call.args and "stdin_base64" in call.args:
        raise UsageError("`stdin` and `stdin_base64` are the same", hint="send one of them")
    if "stdin_base64" in call.args:
        return decoded("stdin_base64", call.args.text("stdin_base64"))
    return call.args.text("stdin").encode("utf-8", "replace") if "stdin" in call.args else None


def decoded(name: str, text: str) -> bytes:
    """Bytes sent as base64.

    Raises:
        UsageError: They are not.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise UsageError(f"`{name}` is no base64: {exc}") from exc


def limit_of(call: Call) -> int:
    """How much output the reply may carry."""
    return call.args.whole("max_bytes", INLINE_BYTES)


def _keep(call: Call) -> int:
    return min(limit_of(call), call.settings.mcp_max_output_bytes)


async def _run(call: Call, argv: Sequence[str] | str) -> Reply:
    row = await call.sandbox()
    command, stdin = command_of(call, argv), stdin_of(call)
    await see_saved(call, row)
    running = Running(call, row, command, stdin, keep_bytes=_keep(call))
    await running.wait(call.args.whole("wait_ms", _WAIT_MS) / 1000)
    return reply_of(call, running.seen)


def reply_of(call: Call, seen: Watched) -> Reply:
    """What was seen of a command, with where the rest of it is."""
    links = []
    if seen.job is not None and seen.out.total_bytes + seen.err.total_bytes > limit_of(call):
        uri = f"sbx://sandboxes/{seen.job.sandbox}/jobs/{seen.job.id}/output"
        links.append(Link(uri, f"all output of {seen.job.id}"))
    return Reply(seen.as_data(), limit_bytes=limit_of(call), links=links)


_COMMAND = Param("command", help="Program to run, found by PATH", is_required=True)
_LINE = Param("command", help="Shell line (bash where there is one)", is_required=True)
_ARGS = Param("args", Kind.WORDS, "Its arguments, passed on as they are")
_PLACE = (common.CWD, common.ENV, common.USER)
_INPUT = (common.STDIN, common.STDIN_BASE64)
_LIMITS = (common.TIMEOUT_MS, common.TIMEOUT, common.WAIT_MS, common.MAX_BYTES)

TOOLS = (
    Tool(
        "sandbox_run",
        Toolset.CORE,
        Effect.ADDS,
        "Make a sandbox for one command, run it, tell what it said, and remove the sandbox.",
        run,
        (
            _LINE,
            dataclasses.replace(_ARGS, help="With these, command is a program instead of a shell line"),
            dataclasses.replace(common.NAME, help="What to call it while it lives", is_required=False),
            *CREATE_PARAMS,
            common.CWD,
            *_INPUT,
            common.TIMEOUT_MS,
            common.TIMEOUT,
            common.MAX_BYTES,
        ),
        reaches_out=True,
    ),
    Tool(
        "sandbox_exec",
        Toolset.CORE,
        Effect.ADDS,
        "Run a program in a sandbox, without a shell. Still running after wait_ms: state is running, and session_id is "
        "what sandbox_exec_poll takes. A failing program is no error: see exit_code.",
        exec_,
        (common.NAME, _COMMAND, _ARGS, *_PLACE, *_INPUT, *_LIMITS),
        reaches_out=True,
    ),
    Tool(
        "sandbox_shell",
        Toolset.CORE,
        Effect.ADDS,
        "Run a shell line in a sandbox; else as sandbox_exec.",
        shell,
        (common.NAME, _LINE, *_PLACE, *_INPUT, *_LIMITS),
        reaches_out=True,
    ),
)
