"""`logs`: what a sandbox says, from all its jobs, or what the platform kept of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime

from sbxtui.cli.call import Call
from sbxtui.core.errors import UsageError
from sbxtui.core.logs import LogLine, LogQuery, LogSource, parse_grep, parse_instant
from sbxtui.core.model import Registration
from sbxtui.core.text import harmless, iso

_TAG_WIDTH = 8


async def logs(call: Call) -> int:
    """Print the lines that are there; with `--follow`, those that come, too."""
    call.out.ends_by_interrupt = call.args.follow
    query = query_of(call)
    row = await call.services.sandboxes.find(call.args.sandbox)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_left_s(query)), aclosing(_lines(call, row, query)) as lines:
            async for line in lines:
                await _show(call, line)
    return 0


def query_of(call: Call) -> LogQuery:
    """What the flags ask for.

    Raises:
        UsageError: One of them cannot be.
    """
    args, now = call.args, datetime.now(UTC)
    if args.log_group and args.source == LogSource.GUEST:
        raise UsageError("--log-group is of CloudWatch", hint="add --source cloudwatch, or build")
    if args.job and args.source != LogSource.GUEST:
        raise UsageError("--job is of the guest's own log", hint="leave --source out")
    return LogQuery(
        source=LogSource(args.source),
        since=parse_instant(args.since, now) if args.since else None,
        until=parse_instant(args.until, now) if args.until else None,
        tail=args.tail,
        grep=parse_grep(args.grep),
        job=args.job,
        log_group=args.log_group,
        is_following=args.follow,
    )


def _lines(call: Call, row: Registration, query: LogQuery) -> AsyncGenerator[LogLine, None]:
    if query.source is LogSource.GUEST:
        return call.services.logs.lines(row, query)
    return call.services.cloud_logs.lines(row, query)


def _left_s(query: LogQuery) -> float | None:
    """How long to follow; for ever without an end."""
    if query.until is None or not query.is_following:
        return None
    return max(0.0, (query.until - datetime.now(UTC)).total_seconds())


async def _show(call: Call, line: LogLine) -> None:
    if call.out.is_json:
        call.out.json(line_json(line))
        return
    text = line.text if call.args.raw else harmless(line.text)
    head = "" if call.out.is_quiet else f"{line.at.astimezone():%H:%M:%S.%f}"[:12] + f"  {_tag(line):<{_TAG_WIDTH}}  "
    await call.out.pass_on(f"{head}{text}\n".encode("utf-8", "replace"))


def _tag(line: LogLine) -> str:
    if not line.is_output:
        return "guest"
    return harmless(line.job)[:_TAG_WIDTH] or line.source.value[:_TAG_WIDTH]


def line_json(line: LogLine) -> dict[str, object]:
    """A line as scripts see it; its text as it came, escapes too."""
    return {
        "at": iso(line.at),
        "source": line.source.value,
        "job": line.job or None,
        "channel": line.channel,
        "text": line.text,
        "cursor": line.cursor or None,
    }
