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
from sbxtui.mcp_server.begun import Begun, Running, RunningOnce
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.creating import FURTHER_PARAMS, PLATFORM_PARAMS, USUAL_PARAMS, options_of
from sbxtui.mcp_server.params import Kind, Param, rare
from sbxtui.mcp_server.reply import INLINE_BYTES, Link, Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.mcp_server.watching import Watched
from sbxtui.services.jobs import Command
from sbxtui.services.runnerctl import start_runner
from sbxtui.services.sync.before import flushed

_WAIT_MS = 45_000
# A client that asks again by itself need not wait.
_TASK_WAIT_MS = 5_000


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
    options, stdin = options_of(call), stdin_of(call)
    # If this process is killed, the runner ends the sandbox.
    await asyncio.to_thread(start_runner, call.settings.home)
    return await _waited(call, RunningOnce(call, options, command, stdin, keep_bytes=_keep(call)))


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
    return await _waited(call, Running(call, row, command, stdin, keep_bytes=_keep(call)))


async def _waited(call: Call, begun: Begun) -> Reply:
    """How it ended, or that it goes on: as a task where the client knows those, else as a session."""
    patience_ms = _TASK_WAIT_MS if call.client.takes_tasks else _WAIT_MS
    await begun.wait(call.args.whole("wait_ms", patience_ms) / 1000)
    return dataclasses.replace(reply_of(call, begun.seen), goes_on=begun.seen.goes_on)


def reply_of(call: Call, seen: Watched) -> Reply:
    """What was seen of a command, with where the rest of it is."""
    links = []
    if seen.job is not None and seen.out.total_bytes + seen.err.total_bytes > limit_of(call):
        uri = f"sbx://sandboxes/{seen.job.sandbox}/jobs/{seen.job.id}/output"
        links.append(Link(uri, f"all output of {seen.job.id}"))
    return Reply(seen.as_data(), limit_bytes=limit_of(call), links=links)


_COMMAND = Param("command", help="Program, found by PATH", is_required=True)
_LINE = Param("command", help="Shell line", is_required=True)
_ARGS = Param("args", Kind.WORDS, "Its arguments, passed on as they are")
_LIMITS = (common.TIMEOUT, common.WAIT_MS)
_SELDOM = (common.TIMEOUT_MS, common.MAX_BYTES, common.STDIN_BASE64)

TOOLS = (
    Tool(
        "sandbox_run",
        Toolset.ONCE,
        Effect.ADDS,
        "Make a sandbox, run one command in it, remove it. Still running after wait_ms: a session as of sandbox_exec, "
        "which ends with this server; the sandbox goes once its end was told.",
        run,
        (
            _LINE,
            dataclasses.replace(_ARGS, help="With these, command is a program, not a shell line"),
            *USUAL_PARAMS,
            common.STDIN,
            *_LIMITS,
            *rare(
                dataclasses.replace(common.NAME, help="What to call it while it lives", is_required=False),
                common.CWD,
                *_SELDOM,
                *PLATFORM_PARAMS,
                *FURTHER_PARAMS,
            ),
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
        (
            common.NAME,
            _COMMAND,
            _ARGS,
            common.CWD,
            common.ENV,
            common.STDIN,
            *_LIMITS,
            *rare(*_SELDOM, common.USER),
        ),
        reaches_out=True,
    ),
    Tool(
        "sandbox_shell",
        Toolset.CORE,
        Effect.ADDS,
        "Run a shell line in a sandbox (bash where there is one); else as sandbox_exec.",
        shell,
        (common.NAME, _LINE, common.CWD, *_LIMITS, *rare(common.ENV, common.STDIN, *_SELDOM, common.USER)),
        reaches_out=True,
    ),
)
