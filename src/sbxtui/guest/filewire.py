"""The shapes of the file endpoints, decoded once and with suspicion: a sandbox may answer anything."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from sbxguest.tree import Problem, TreeError, TreeReport, pack
from sbxtui.core.errors import AccessDenied, FileMissing, QuotaExceeded, SbxError, UsageError
from sbxtui.core.model import FileInfo
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass
from sbxtui.guest.faults import garbled
from sbxtui.guest.http1 import Answer, let_go

BATCH_BYTES = 1024 * 1024
_MAX_LINE_BYTES = 256 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_NS = 253_402_300_799 * 10**9
_KINDS = {"file", "dir", "link"}
_LOCAL_FAULTS: Mapping[str, type[SbxError]] = {
    "disk_full": QuotaExceeded,
    "access_denied": AccessDenied,
    "file_not_found": FileMissing,
}


@dataclass(frozen=True, slots=True)
class Download:
    """A file being read; `chunks` can be read once. `size_bytes` is the whole file's, 0 for the kernel's own files."""

    path: str
    size_bytes: int
    mode: int
    modified_at: datetime
    mtime_ns: int
    chunks: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries by path, relative to the folder. `is_truncated`: there are more than were asked for.

    `unreadable` are folders below that could not be looked into.
    """

    entries: tuple[FileInfo, ...]
    is_truncated: bool
    unreadable: tuple[str, ...] = ()


def url(endpoint: str, path: str, query: Mapping[str, str] | None = None) -> str:
    """`endpoint` with `path` in its query; bytes that are not UTF-8 travel as they are."""
    rest = f"&{urlencode(query)}" if query else ""
    return f"{endpoint}?path={quote(os.fsencode(path), safe='/')}{rest}"


def shown(path: str) -> str:
    """A path as a message shows it."""
    return f"`{harmless_line(path, limit=200)}`"


def as_object(body: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        GuestUnreachable: It is something else.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise garbled("not JSON") from exc
    if not isinstance(value, dict):
        raise garbled("no JSON object")
    return value


def whole(fields: Mapping[str, Any], name: str) -> int:
    """A whole number ≥ 0.

    Raises:
        GuestUnreachable: It is something else.
    """
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise garbled(f"`{name}` is no size")
    return value


def text(fields: Mapping[str, Any], name: str) -> str:
    """A string.

    Raises:
        GuestUnreachable: It is something else.
    """
    value = fields.get(name)
    if not isinstance(value, str):
        raise garbled(f"`{name}` is no text")
    return value


def instant(mtime_ns: int) -> datetime:
    """An instant to the microsecond; times out of the calendar's reach become its ends."""
    return _EPOCH + timedelta(microseconds=min(max(0, mtime_ns), _LATEST_NS) // 1000)


def file_info(fields: Mapping[str, Any]) -> FileInfo:
    """An entry as the guest describes it.

    Raises:
        GuestUnreachable: It is none.
    """
    kind = text(fields, "kind")
    return FileInfo(
        path=text(fields, "path"),
        kind=kind if kind in _KINDS else "other",
        size_bytes=whole(fields, "size_bytes"),
        mode=whole(fields, "mode") & 0o7777,
        modified_at=instant(_signed(fields, "mtime_ns")),
        target=text(fields, "target") if kind == "link" else "",
    )


def _signed(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise garbled(f"`{name}` is no number")
    return value


def download_of(path: str, answer: Answer) -> Download:
    """The head of a download.

    Raises:
        GuestUnreachable: A fact is missing or no number.
    """
    try:
        mtime_ns = int(answer.headers["x-sbx-mtime-ns"])
        size_bytes, mode = int(answer.headers["x-sbx-size"]), int(answer.headers["x-sbx-mode"], 8)
    except (KeyError, ValueError) as exc:
        raise garbled("a file without its facts") from exc
    return Download(path, size_bytes, mode & 0o7777, instant(mtime_ns), mtime_ns, answer.pieces())


def tree_report(fields: Mapping[str, Any]) -> TreeReport:
    """What the guest made of an uploaded tree.

    Raises:
        GuestUnreachable: It is no report.
    """
    problems = fields.get("problems")
    if not isinstance(problems, list) or not all(isinstance(one, dict) for one in problems):
        raise garbled("`problems` is no list")
    return TreeReport(
        files=whole(fields, "files"),
        folders=whole(fields, "folders"),
        links=whole(fields, "links"),
        size_bytes=whole(fields, "size_bytes"),
        problems=tuple(Problem(text(one, "path"), text(one, "code")) for one in problems),
        problem_count=whole(fields, "problem_count"),
    )


def harmless_report(report: TreeReport) -> TreeReport:
    """The report with names that can be shown; they are for people only, whoever made the tree."""
    problems = tuple(Problem(harmless_line(one.path), harmless_line(one.code)) for one in report.problems)
    return replace(report, problems=problems)


class SourceChanged(UsageError):
    """What was to be sent has another length by now."""


async def exactly(chunks: AsyncIterable[bytes], size_bytes: int, path: str) -> AsyncIterator[bytes]:
    """The chunks, if they are `size_bytes` in all.

    Raises:
        SourceChanged: They are more or fewer; the last one is held back then, so that no receiver takes them as whole.
    """
    left = size_bytes
    held = b""
    try:
        async for chunk in chunks:
            if held:
                yield held
            held = chunk
            left -= len(chunk)
            if left < 0:
                break
    finally:
        await let_go(chunks)
    if left:
        raise SourceChanged(f"the source of {shown(path)} changed its size while it was sent", hint="try again")
    if held:
        yield held


async def packed(source: Path) -> AsyncIterator[bytes]:
    """A local folder as a tar stream; all disk work in threads.

    Raises:
        SbxError: The folder cannot be read, or a file shrank meanwhile.
    """
    pieces = pack(os.fspath(source))
    try:
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece
    except TreeError as exc:
        raise tree_fault(exc) from exc
    finally:
        # A thread that was left behind by a cancel may still be inside the generator.
        with suppress(ValueError):
            pieces.close()


def tree_fault(exc: TreeError) -> SbxError:
    """The error of a tree that could not be read from or written to this machine."""
    return _LOCAL_FAULTS.get(exc.code, UsageError)(harmless_line(exc.message), details={"code": exc.code})


async def batches(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Gather chunks until about 1 MiB is together."""
    batch: list[bytes] = []
    size_bytes = 0
    async for chunk in chunks:
        batch.append(chunk)
        size_bytes += len(chunk)
        if size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Cut a stream into lines.

    Raises:
        GuestUnreachable: A line is longer than any entry, or the last one has no end.
    """
    pending = b""
    async for chunk in chunks:
        *whole_lines, pending = (pending + chunk).split(b"\n")
        for line in whole_lines:
            yield line
        if len(pending) > _MAX_LINE_BYTES:
            raise garbled("a line without end")
    if pending:
        raise garbled("the last line was cut off")
