"""Tools for commands that go on: begun, looked at, typed into, signalled, ended. They belong to their sandbox.

A session is a job: the person at the dashboard and other agents see and use the same ones, and it outlives this server.
"""

from __future__ import annotations

import asyncio
import dataclasses

from sbxtui.core.errors import TimedOut, UsageError
from sbxtui.core.jobs import Job, TerminalSize, signal_name
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param, rare
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.mcp_server.tools_exec import command_of, decoded, limit_of, reply_of, see_saved
from sbxtui.mcp_server.watching import end, watch

_WRITE_S = 20.0


async def start(call: Call) -> Reply:
    """Begin a command and leave it running."""
    args = call.args
    row = await call.sandbox()
    if args.flag("shell") and args.words("args"):
        raise UsageError("a shell line takes no `args`", hint="leave `shell` out, or write them into the line")
    line = args.text("command")
    command = command_of(call, line if args.flag("shell") else [line, *args.words("args")], is_bounded=False)
    if args.flag("tty"):
        command = dataclasses.replace(command, terminal=TerminalSize())
    await see_saved(call, row)
    job = await call.services.jobs.start(row, command, has_stdin=args.flag("stdin"))
    seen = await watch(call, job, wait_s=args.whole("wait_ms") / 1000, keep_bytes=limit_of(call))
    return reply_of(call, seen)


async def poll(call: Call) -> Reply:
    """What a session said since a cursor, and whether it goes on."""
    job = await _session(call)
    wait_s = call.args.whole("wait_ms") / 1000
    seen = await watch(call, job, wait_s=wait_s, keep_bytes=limit_of(call), cursor=call.args.whole("cursor"))
    if seen.exit is not None:
        call.endings.told(job.id)
    return reply_of(call, seen)


async def write_stdin(call: Call) -> Reply:
    """Type into a session."""
    args = call.args
    if "data" in args and "data_base64" in args:
        raise UsageError("`data` and `data_base64` are the same", hint="send one of them")
    data = decoded("data_base64", args.text("data_base64")) if "data_base64" in args else args.text("data").encode()
    job = await _session(call)
    try:
        async with asyncio.timeout(_WRITE_S):
            await call.services.jobs.write(job, data, ends=args.flag("close"))
    except TimeoutError as exc:
        raise TimedOut(
            f"session `{job.id}` did not read all of its input within {_WRITE_S:.0f} s",
            hint="look at it with `sandbox_exec_poll`: it may wait for something else",
        ) from exc
    return Reply({"session_id": job.id, "name": job.sandbox, "written_bytes": len(data), "closed": args.flag("close")})


async def signal(call: Call) -> Reply:
    """Send a signal to a session's process group; KILL to everything it started."""
    name = signal_name(call.args.text("signal"))
    job = await _session(call)
    await call.services.jobs.signal(job, name)
    return Reply({"session_id": job.id, "name": job.sandbox, "signal": name})


async def close(call: Call) -> Reply:
    """End a session with everything it started, and tell its last words."""
    job = await _session(call)
    if not job.is_over:
        await end(call, job)
    seen = await watch(call, job, wait_s=_WRITE_S, keep_bytes=limit_of(call), cursor=call.args.whole("cursor"))
    call.endings.told(job.id)
    return reply_of(call, seen)


async def _session(call: Call) -> Job:
    return await call.services.job_lists.find(call.args.text("session_id"))


_SESSION = Param("session_id", help="Of a reply", is_required=True, aliases=("execSessionId",))
_CURSOR = Param("cursor", Kind.WHOLE, "From this byte of its output on (0)", least=0)
_WAIT = Param("wait_ms", Kind.WHOLE, "Wait so long for more, or its end (0)", least=0, most=45_000)

TOOLS = (
    Tool(
        "sandbox_exec_start",
        Toolset.CORE,
        Effect.ADDS,
        "Begin a command and leave it running as a session, which outlives this server.",
        start,
        (
            common.NAME,
            Param("command", help="Program, or with shell a shell line", is_required=True),
            Param("args", Kind.WORDS, "Its arguments"),
            Param("shell", Kind.FLAG, "command is a shell line"),
            Param("stdin", Kind.FLAG, "Give it an input to write to later"),
            Param("tty", Kind.FLAG, "Run it on a terminal"),
            common.CWD,
            common.ENV,
            _WAIT,
            *rare(
                common.USER,
                Param("timeout_ms", Kind.WHOLE, "Kill it after so long (never)", least=1),
                common.MAX_BYTES,
            ),
        ),
        reaches_out=True,
    ),
    Tool(
        "sandbox_exec_poll",
        Toolset.CORE,
        Effect.READS,
        "What a session said from cursor on, and how it ended if it did.",
        poll,
        (_SESSION, _CURSOR, _WAIT, common.MAX_BYTES),
    ),
    Tool(
        "sandbox_exec_write_stdin",
        Toolset.CORE,
        Effect.ADDS,
        "Write to a session that was started with stdin or tty.",
        write_stdin,
        (
            _SESSION,
            Param("data", help="Text"),
            Param("data_base64", help="Bytes"),
            Param("close", Kind.FLAG, "Then end its input"),
        ),
        reaches_out=True,
        in_turn_by=_SESSION.name,
    ),
    Tool(
        "sandbox_exec_signal",
        Toolset.CORE,
        Effect.DESTROYS,
        "Send a signal to a session's process group; KILL to everything it started.",
        signal,
        (_SESSION, Param("signal", help="Like TERM, INT, KILL, or a number", is_required=True)),
    ),
    Tool(
        "sandbox_exec_close",
        Toolset.CORE,
        Effect.DESTROYS,
        "End a session with everything it started; tells its output from cursor on.",
        close,
        (_SESSION, _CURSOR, *rare(common.MAX_BYTES)),
    ),
)
