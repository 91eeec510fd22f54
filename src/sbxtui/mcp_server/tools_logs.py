"""Tools that read what sandboxes said: all jobs' lines in one order, or what the platform kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sbxtui.core.errors import UsageError
from sbxtui.core.logs import LogLine, LogQuery, LogSource, parse_grep, parse_instant
from sbxtui.core.model import Registration
from sbxtui.core.text import iso
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.clip import Clip
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.mcp_server.tools_exec import limit_of

_TAIL = 200
_FOLLOW_MS = 5_000
_SHORT_JOB = 8
# Nothing was said a hundred years ago, and not long before that the calendar begins.
_ALL_MINUTES = 100 * 366 * 1_440


async def read(call: Call) -> Reply:
    """The lines that are there."""
    row = await call.sandbox()
    return await _reply(call, row, replace(_query(call), tail=call.args.whole("tail", _TAIL)))


async def stream(call: Call) -> Reply:
    """The lines behind a cursor, and those that come meanwhile."""
    row = await call.sandbox()
    return await _reply(call, row, replace(_query(call), is_following=True))


def _query(call: Call) -> LogQuery:
    args, now = call.args, datetime.now(UTC)
    source = LogSource(args.text("source", LogSource.GUEST.value))
    log_group = args.text("log_group")
    if log_group and source is LogSource.GUEST:
        source = LogSource.CLOUDWATCH
    since = parse_instant(args.text("since"), now) if "since" in args else None
    if "since_minutes" in args:
        since = now - timedelta(minutes=min(args.whole("since_minutes"), _ALL_MINUTES))
    if "session_id" in args and source is not LogSource.GUEST:
        raise UsageError("`session_id` is of the guest's own log", hint="leave `source` out")
    return LogQuery(
        source=source,
        since=since,
        grep=parse_grep(args.text("grep")),
        job=args.text("session_id"),
        log_group=log_group,
    )


async def _reply(call: Call, row: Registration, query: LogQuery) -> Reply:
    after, wait_s = call.args.whole("cursor"), call.args.whole("follow_timeout_ms", _FOLLOW_MS) / 1_000
    content, count, cursor = Clip(min(limit_of(call), call.settings.mcp_max_output_bytes)), 0, after
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s if query.is_following else None), aclosing(_lines(call, row, query)) as lines:
            async for line in lines:
                if line.cursor and line.cursor <= after:
                    continue
                count, cursor = count + 1, max(cursor, line.cursor)
                content.add(_text(line).encode("utf-8", "replace"))
    told = {"name": row.name, "source": query.source.value, "lines": count, "content": content, "cursor": cursor}
    return Reply({**told, "untrusted": True}, limit_bytes=limit_of(call))


def _lines(call: Call, row: Registration, query: LogQuery) -> AsyncGenerator[LogLine, None]:
    logs = call.services.logs if query.source is LogSource.GUEST else call.services.cloud_logs
    return logs.lines(row, query)


def _text(line: LogLine) -> str:
    who = f"{line.job[:_SHORT_JOB]} {line.channel}".strip() if line.is_output else line.channel
    return f"{iso(line.at)} {who}: {line.text}\n"


_WHICH = (
    Param("grep", help="Only lines in which this regular expression is found"),
    Param("since_minutes", Kind.WHOLE, "Only of the last minutes", least=1),
    Param("since", help="Only after this: an instant, or an age like 10m"),
    Param("session_id", help="Only of one command"),
    Param("source", help="guest if left out", choices=tuple(one.value for one in LogSource)),
    Param("log_group", help="CloudWatch group"),
)

TOOLS = (
    Tool(
        "sandbox_logs_read",
        Toolset.OBSERVE,
        Effect.READS,
        "What the commands of a sandbox said, in one order; the last lines.",
        read,
        (common.NAME, Param("tail", Kind.WHOLE, "How many lines (200)", least=0), *_WHICH, common.MAX_BYTES),
    ),
    Tool(
        "sandbox_logs_stream",
        Toolset.OBSERVE,
        Effect.READS,
        "The same from cursor on, waiting for more until follow_timeout_ms have passed.",
        stream,
        (
            common.NAME,
            Param("cursor", Kind.WHOLE, "cursor of the last reply", least=0, aliases=("from_cursor", "fromCursor")),
            Param("follow_timeout_ms", Kind.WHOLE, "5000 if left out", least=0, most=45_000),
            *_WHICH,
            common.MAX_BYTES,
        ),
    ),
)
