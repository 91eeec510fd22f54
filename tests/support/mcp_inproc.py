"""The MCP server in this process, spoken to by the SDK's client: for everything but the pipe and the process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp_types import Implementation

from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.options import Options
from sbxtui.mcp_server.server import build_server
from sbxtui.settings import load
from tests.support.mcp_process import CLIENT, Era
from tests.support.sbx import Sbx


@asynccontextmanager
async def mcp_inproc(
    sbx: Sbx, *, era: Era = "legacy", options: Options | None = None, env: dict[str, str] | None = None, **more: Any
) -> AsyncIterator[Client]:
    """A client of a server that works in a home; both are ended with the block."""
    settings = load({**sbx.environment(), **(env or {})}, cwd=sbx.home)
    face = Face(settings, options or Options())
    info = Implementation(name=CLIENT, version="1")
    try:
        async with Client(build_server(face), mode=era, client_info=info, cache=None, **more) as client:
            yield client
    finally:
        await face.close()
