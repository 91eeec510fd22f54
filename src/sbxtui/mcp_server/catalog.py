"""Every tool there is, and those a client is offered."""

from __future__ import annotations

from sbxtui.core.errors import UsageError
from sbxtui.mcp_server import (
    tools_cost,
    tools_events,
    tools_exec,
    tools_fs,
    tools_hostcopy,
    tools_images,
    tools_lifecycle,
    tools_links,
    tools_logs,
    tools_metrics,
    tools_runtime,
    tools_sessions,
)
from sbxtui.mcp_server.options import Options
from sbxtui.mcp_server.tool import Effect, Tool, Toolset

TOOLS: tuple[Tool, ...] = (
    *tools_runtime.TOOLS,
    *tools_lifecycle.TOOLS,
    *tools_exec.TOOLS,
    *tools_sessions.TOOLS,
    *tools_fs.TOOLS,
    *tools_hostcopy.TOOLS,
    *tools_logs.TOOLS,
    *tools_metrics.TOOLS,
    *tools_cost.TOOLS,
    *tools_events.TOOLS,
    *tools_images.TOOLS,
    *tools_links.TOOLS,
)
_ALL = "all"


def offered(options: Options) -> list[Tool]:
    """The tools that the options allow, in a fixed order.

    Raises:
        UsageError: A toolset or tool that there is not.
    """
    names = {tool.name for tool in TOOLS}
    if unknown := [name for name in options.tools if name not in names]:
        raise UsageError(f"there is no tool `{unknown[0]}`", hint="`sbx mcp doctor` lists them")
    known = (*Toolset, _ALL)
    if unknown := [name for name in options.toolsets if name not in known]:
        raise UsageError(f"there is no toolset `{unknown[0]}`", hint=f"known: {', '.join(known)}")
    has_all = _ALL in options.toolsets or not (options.toolsets or options.tools)
    chosen = [tool for tool in TOOLS if has_all or tool.toolset in options.toolsets or tool.name in options.tools]
    return [tool for tool in chosen if tool.effect is Effect.READS or not options.is_read_only]
