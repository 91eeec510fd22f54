"""Every tool there is, and those a client is offered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sbxtui.core.errors import UsageError
from sbxtui.mcp_server import (
    tools_copies,
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
from sbxtui.mcp_server.tool import Tool, Toolset

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
    *tools_copies.TOOLS,
)
_ALL = "all"


def offered(options: Options, approve: Collection[str] = ()) -> list[Tool]:
    """The tools that the options allow, in a fixed order; calls of those named in `approve` wait for a person.

    Raises:
        UsageError: A toolset or tool that there is not.
    """
    names = {tool.name for tool in TOOLS}
    if unknown := [name for name in (*options.tools, *approve) if name not in names]:
        raise UsageError(f"there is no tool `{unknown[0]}`", hint="docs/mcp.md lists them")
    known = (*Toolset, _ALL)
    if unknown := [name for name in options.toolsets if name not in known]:
        raise UsageError(f"there is no toolset `{unknown[0]}`", hint=f"known: {', '.join(known)}")
    has_all = _ALL in options.toolsets or not (options.toolsets or options.tools)
    chosen = [tool for tool in TOOLS if has_all or tool.toolset in options.toolsets or tool.name in options.tools]
    chosen = [replace(tool, needs_approval=True) if tool.name in approve else tool for tool in chosen]
    return [one for tool in chosen if (one := tool.looking())] if options.is_read_only else chosen
