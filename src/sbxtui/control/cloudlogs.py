"""How the platform names groups and streams of CloudWatch Logs, and its events as our lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sbxtui.core.logs import LogLine, LogSource

# Measured, and as some pages of the documentation have it.
_GROUPS = ("/aws/lambda-microvms/", "/aws/lambda/microvms/")
_RUNTIME = re.compile(r"\d{4}/\d{2}/\d{2}\[[^\]]*\]microvm-.+")


def groups_of(image: str) -> list[str]:
    """Where output of an image's sandboxes and builds may be."""
    return [group + image for group in _GROUPS]


def stream_of(started_at: datetime, version: str, sandbox_id: str) -> str:
    """A sandbox's stream: by the day it was started, in UTC."""
    return f"{started_at.astimezone(UTC):%Y/%m/%d}[{version}]{sandbox_id}"


def is_runtime(stream: str) -> bool:
    """Whether a stream is a sandbox's; the others of a group are of builds."""
    return _RUNTIME.fullmatch(stream) is not None


def line_of(event: Mapping[str, Any], source: LogSource) -> LogLine:
    """An event of GetLogEvents as a line."""
    at = datetime.fromtimestamp(float(event.get("timestamp", 0)) / 1000, UTC)
    return LogLine(at, source, "out", str(event.get("message", "")).removesuffix("\n"))
