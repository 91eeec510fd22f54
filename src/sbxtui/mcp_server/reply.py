"""Replies of tools: one envelope, as text and as structured content, never above what clients take.

`{"ok": true, "data": {…}, "warnings": […]}`, or `{"ok": false, "error": {code, message, hint, retryable, details}}`.
Beside a field that may be cut stand `truncated`, `total_bytes` and `returned_bytes`; where a reply has several such
fields, with the field's name in front.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mcp_types import CallToolResult, ContentBlock, ImageContent, InputRequiredResult, ResourceLink, TextContent

from sbxtui.core.errors import SbxError
from sbxtui.core.jobs import Job
from sbxtui.core.text import iso
from sbxtui.mcp_server.clip import Clip
from sbxtui.mcp_server.codes import INTERNAL, error_document

INLINE_BYTES = 32 * 1024
# Clients refuse a frame of a megabyte. The envelope is in it twice, once as text in JSON.
_FRAME_BYTES = 900_000
_SMALLEST_BYTES = 512

OUTPUT_SCHEMA: dict[str, Any] = {"type": "object", "required": ["ok", "data"]}


@dataclass(frozen=True, slots=True)
class Image:
    """A picture for clients that show or read it."""

    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class Link:
    """A resource that has more."""

    uri: str
    name: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool found; values of `data` may be `Clip`s. `limit_bytes` is how much of all of those is shown.

    `goes_on` is a command that has not ended: for clients that know tasks, the reply is a task.
    """

    data: Mapping[str, object]
    limit_bytes: int = INLINE_BYTES
    images: Sequence[Image] = ()
    links: Sequence[Link] = ()
    warnings: Sequence[str] = field(default=())
    goes_on: Job | None = None


def success(reply: Reply, warnings: Sequence[str] = ()) -> CallToolResult:
    """The result of a call that did what it was asked."""
    limit = reply.limit_bytes
    images = _images(reply.images)
    room = _FRAME_BYTES - sum(len(one.data) for one in images)
    while True:
        document: dict[str, object] = {"ok": True, "data": _rendered(reply.data, limit)}
        if told := [*reply.warnings, *warnings]:
            document["warnings"] = told
        text = dumped(document)
        # What a frame takes: the document, and the same as a JSON string.
        if len(text) + len(json.dumps(text)) <= room or limit <= _SMALLEST_BYTES:
            break
        limit //= 2
    links = [ResourceLink(uri=one.uri, name=one.name, mime_type="text/plain") for one in reply.links]
    content: list[ContentBlock] = [TextContent(text=text), *images, *links]
    return CallToolResult(content=content, structured_content=json.loads(text))


def failure(error: SbxError) -> CallToolResult:
    """The result of a call that did not. Older clients check structured content even of errors, so there is none."""
    document = {"ok": False, "error": error_document(error)}
    return CallToolResult(content=[TextContent(text=dumped(document))], is_error=True)


def code_of_result(result: CallToolResult | InputRequiredResult | Mapping[str, object]) -> str:
    """How a call ended, in one word: `ok`, `asked`, or the code of its error."""
    if isinstance(result, InputRequiredResult):
        return "asked"
    # Any other document is that of a task, which goes on.
    if not isinstance(result, CallToolResult) or not result.is_error:
        return "ok"
    content = result.content[0]
    return str(json.loads(content.text)["error"]["code"]) if isinstance(content, TextContent) else INTERNAL


def dumped(document: object) -> str:
    """Compact JSON that can be sent: lone surrogates, which stand for bytes that are no text, become U+FFFD."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=_jsonable)
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _rendered(data: Mapping[str, object], limit_bytes: int) -> dict[str, object]:
    shares = _shares({key: value.total_bytes for key, value in data.items() if isinstance(value, Clip)}, limit_bytes)
    found: dict[str, object] = {}
    for key, value in data.items():
        if not isinstance(value, Clip):
            found[key] = value
            continue
        shown = value.shown(shares[key])
        prefix = "" if len(shares) == 1 else f"{key}_"
        found[key] = shown.text
        found[f"{prefix}truncated"] = shown.is_truncated
        found[f"{prefix}total_bytes"] = shown.total_bytes
        found[f"{prefix}returned_bytes"] = shown.returned_bytes
    return found


def _shares(sizes: Mapping[str, int], limit_bytes: int) -> dict[str, int]:
    """How much of each is shown: what is small leaves its room to the others."""
    shares: dict[str, int] = {}
    left = limit_bytes
    for place, (key, size) in enumerate(sorted(sizes.items(), key=lambda one: one[1])):
        shares[key] = min(size, left // (len(sizes) - place))
        left -= shares[key]
    return shares


def _images(images: Sequence[Image]) -> list[ImageContent]:
    return [ImageContent(data=base64.b64encode(one.data).decode(), mime_type=one.mime_type) for one in images]


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)
