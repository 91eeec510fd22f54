"""What a server offers, over our own tables: tools, and who answers everything else."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    ToolAnnotations,
)
from mcp_types import Tool as ListedTool

from sbxtui.core.text import harmless_line
from sbxtui.mcp_server.catalog import offered
from sbxtui.mcp_server.client import RequestClient
from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.params import input_schema
from sbxtui.mcp_server.reading import Reading
from sbxtui.mcp_server.reply import OUTPUT_SCHEMA
from sbxtui.mcp_server.running import run_tool
from sbxtui.mcp_server.subscriptions import Subscriptions
from sbxtui.mcp_server.tasks import Tasks
from sbxtui.mcp_server.tool import Effect, Tool

_Context = ServerRequestContext[Any, Any]


class Offer:
    """What the options of a face allow.

    Raises:
        UsageError: They name a tool or toolset that there is not.
    """

    def __init__(self, face: Face) -> None:
        self.reading, self.subscriptions, self.tasks = Reading(face), Subscriptions(face), Tasks(face)
        self._face = face
        self._tools = {tool.name: tool for tool in offered(face.options, face.approve)}
        self._listed = ListToolsResult(tools=[listed(tool) for tool in self._tools.values()])

    async def list_tools(self, context: _Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """All, in a fixed order."""
        return self._listed

    async def call_tool(self, context: _Context, params: CallToolRequestParams) -> Any:
        """Run one."""
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool `{harmless_line(params.name, limit=80)}`")
        return await run_tool(self._face, tool, params.arguments or {}, RequestClient(context, params))


def listed(tool: Tool) -> ListedTool:
    """A tool as clients see it."""
    return ListedTool(
        name=tool.name,
        description=tool.help,
        input_schema=input_schema(tool.params),
        output_schema=OUTPUT_SCHEMA,
        annotations=_annotations(tool),
    )


def _annotations(tool: Tool) -> ToolAnnotations:
    """What a tool may do; what is as every client assumes, or means nothing for a reader, is left out."""
    if tool.effect is Effect.READS:
        return ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return ToolAnnotations(
        read_only_hint=False,
        destructive_hint=tool.effect is Effect.DESTROYS,
        idempotent_hint=True if tool.effect is Effect.SETS else None,
        open_world_hint=tool.reaches_out,
    )
