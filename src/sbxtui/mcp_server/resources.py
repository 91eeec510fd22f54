"""Resources: what clients read without calling a tool. Each is a pattern of paths and the function that reads it."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlsplit

from sbxtui.core.documents import event_json, image_json, inspected_json, sandbox_json
from sbxtui.core.errors import NotFound, UsageError
from sbxtui.core.jobs import JobOutput
from sbxtui.core.logs import LogQuery
from sbxtui.core.text import harmless_line, iso
from sbxtui.mcp_server.catalog import TOOLS, offered
from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.facts import runtime_facts
from sbxtui.mcp_server.params import full_schema
from sbxtui.mcp_server.reply import dumped
from sbxtui.mcp_server.tools_lifecycle import CREATE
from sbxtui.wiring import Services

SCHEME = "sbx"
# As a server from before called them.
_SCHEMES = (SCHEME, "agent-sandbox")
JSON, TEXT = "application/json", "text/plain"
_EVENTS = 50
_LINES = 200
_OUTPUT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """One reading of a resource: `values` are the parts of its path that vary, `query` what follows a `?`."""

    face: Face
    services: Services
    values: Mapping[str, str]
    query: Mapping[str, str]

    def whole(self, name: str, default: int) -> int:
        """A number of the query.

        Raises:
            UsageError: It is none.
        """
        text = self.query.get(name, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise UsageError(f"`{name}` must be a whole number, not `{harmless_line(text, limit=40)}`")
        return int(text)


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource, or with `{parts}` in its path a family of them."""

    path: str
    help: str
    read: Callable[[Asked], Awaitable[str]]
    mime_type: str = JSON

    @property
    def uri(self) -> str:
        """Its address, or the template of one."""
        return f"{SCHEME}://{self.path}"

    @property
    def is_template(self) -> bool:
        """Whether parts of it vary."""
        return "{" in self.path

    def match(self, path: str) -> dict[str, str] | None:
        """The parts of a path that vary, if it is one of these."""
        plain = re.sub(r"\{\?[^}]*\}", "", self.path)
        pattern = "".join(
            re.escape(piece) if not piece.startswith("{") else f"(?P<{piece[1:-1].lstrip('+')}>{_part(piece)})"
            for piece in re.split(r"(\{[^}]*\})", plain)
        )
        found = re.fullmatch(pattern, path)
        return None if found is None else {key: unquote(value) for key, value in found.groupdict().items()}


async def read(face: Face, services: Services, uri: str) -> tuple[str, str]:
    """What a resource holds, and its MIME type.

    Raises:
        NotFound: There is no such resource. SbxError: It cannot be read.
    """
    parts = urlsplit(uri)
    path = f"{parts.netloc}{parts.path}"
    if parts.scheme in _SCHEMES:
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        for resource in RESOURCES:
            if (values := resource.match(path)) is not None:
                return await resource.read(Asked(face, services, values, query)), resource.mime_type
    raise NotFound(f"there is no resource {harmless_line(uri, limit=200)}")


def spellings(path: str) -> list[str]:
    """Every address of a resource."""
    return [f"{scheme}://{path}" for scheme in _SCHEMES]


def sandbox_path(name: str) -> str:
    """The path of a sandbox's resource."""
    return f"sandboxes/{quote(name, safe='')}"


def _part(piece: str) -> str:
    return ".+" if piece.startswith("{+") else "[^/]+"


async def _runtime(asked: Asked) -> str:
    return dumped(await runtime_facts(asked.services))


async def _sandboxes(asked: Asked) -> str:
    inventory = await asked.services.inventories.live(asked.services.context)
    return dumped([sandbox_json(one) for one in inventory.sandboxes])


async def _sandbox(asked: Asked) -> str:
    row = await asked.services.sandboxes.find(asked.values["name"])
    return dumped(inspected_json(row, await asked.services.sandboxes.record(row.id)))


async def _logs(asked: Asked) -> str:
    row = await asked.services.sandboxes.find(asked.values["name"])
    lines = []
    async with aclosing(asked.services.logs.lines(row, LogQuery(tail=asked.whole("tail", _LINES)))) as found:
        async for line in found:
            lines.append(f"{iso(line.at)} {line.job[:8]} {line.channel}: {line.text}\n")
    return "".join(lines)[-_OUTPUT_BYTES:]


async def _output(asked: Asked) -> str:
    row = await asked.services.sandboxes.find(asked.values["name"])
    job = await asked.services.job_lists.find(asked.values["job"], row)
    left = min(asked.whole("len", _OUTPUT_BYTES), _OUTPUT_BYTES)
    data = bytearray()
    async with aclosing(asked.services.jobs.follow(job, cursor=asked.whole("from", 0), until_quiet=True)) as pieces:
        async for piece in pieces:
            if isinstance(piece, JobOutput):
                data += piece.data[: left - len(data)]
            if len(data) >= left:
                break
    if asked.query.get("encoding") == "base64":
        return base64.b64encode(data).decode()
    return data.decode("utf-8", "replace")


async def _file(asked: Asked) -> str:
    row = await asked.services.sandboxes.find(asked.values["name"])
    data, _ = await asked.services.files.peek(row, asked.values["path"], _OUTPUT_BYTES)
    return data.decode("utf-8", "replace")


async def _images(asked: Asked) -> str:
    plane = await asked.services.planes.open(asked.services.context)
    return dumped([image_json(one) for one in await plane.images()])


async def _policy(asked: Asked) -> str:
    settings, options, paths = asked.face.settings, asked.face.options, asked.face.host_paths
    tools = offered(options)
    return dumped(
        {
            "host_path_policy": "unrestricted" if paths.is_unrestricted else "allowlist",
            "host_paths": paths.roots,
            "read_only": options.is_read_only,
            "tools": [tool.name for tool in tools],
            "needs_approval": asked.face.approve,
            "needs_confirm": [tool.name for tool in tools if any(param.name == "confirm" for param in tool.params)],
            "default_timeout_ms": settings.mcp_default_timeout_ms,
            "max_output_bytes": settings.mcp_max_output_bytes,
        }
    )


async def _schema(asked: Asked) -> str:
    name = asked.values.get("tool", CREATE.name).replace("-", "_")
    tool = next((tool for tool in TOOLS if tool.name == name), None)
    if tool is None:
        raise NotFound(f"there is no tool `{harmless_line(name, limit=80)}`")
    params = tool.params
    aliases = {param.name: list(param.spellings[1:]) for param in params if len(param.spellings) > 1}
    rarer = [param.name for param in params if param.is_rare]
    return dumped({**full_schema(params), "options": rarer, "aliases": aliases})


async def _events(asked: Asked) -> str:
    found = await asyncio.to_thread(asked.services.events.tail, asked.whole("limit", _EVENTS))
    return dumped([event_json(one) for one in found])


RESOURCES = (
    Resource("runtime", "What works on this machine, and what does not", _runtime),
    Resource("sandboxes", "All sandboxes with their live state", _sandboxes),
    Resource("images", "Images that sandboxes can be made from", _images),
    Resource("policy", "What this server allows: folders, tools, limits", _policy),
    Resource("schemas/sandbox-create", "All arguments of sandbox_create, with all their spellings", _schema),
    Resource("events", "Who changed what, newest last", _events),
    Resource("schemas/{tool}", "All arguments of a tool, with all their spellings", _schema),
    Resource("sandboxes/{name}", "All that is known of a sandbox", _sandbox),
    Resource("sandboxes/{name}/logs", "What its commands said", _logs, TEXT),
    Resource(
        "sandboxes/{name}/jobs/{job}/output{?from,len,encoding}",
        "Output of one command, from a byte on; or as base64",
        _output,
        TEXT,
    ),
    Resource("sandboxes/{name}/files/{+path}", "A file of a sandbox", _file, TEXT),
)
