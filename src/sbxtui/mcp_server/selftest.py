"""Starting a server as a client would, from nowhere and with next to no environment, and asking it how it is."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import Implementation, TextContent

from sbxtui._version import __version__
from sbxtui.core.text import counted, harmless_line
from sbxtui.mcp_server.config import Launch
from sbxtui.services.doctor import Check

_START_S, _CALL_S = 30.0, 60.0
_PATH = "/usr/local/bin:/usr/bin:/bin"


async def examine(launch: Launch, home: Path, tell: Callable[[str], None]) -> list[Check]:
    """Start a server and ask it.

    Args:
        launch: How.
        home: Of the person: all that clients are sure to pass on.
        tell: Hears what is being done, for it may take long.

    Returns:
        What was found; a server that does not start is a finding, too.
    """
    if not Path(launch.command).is_absolute() or not Path(launch.command).is_file():
        words = f"`{harmless_line(launch.command)}` is no absolute path of a program"
        return [Check("command", "fail", words, "clients do not have your PATH: `sbx mcp config` writes it out")]
    checks = [Check("command", "ok", " ".join((launch.command, *launch.args)))]
    env = {"HOME": str(home), "PATH": _PATH, **launch.env}
    with tempfile.TemporaryFile("w+") as errors:
        try:
            async with asyncio.timeout(_START_S + _CALL_S):
                tell(f"starting it with nothing but HOME and PATH, at most {_START_S:.0f} s")
                checks += await _asked(launch, env, errors, tell)
        except (Exception, TimeoutError) as exc:  # noqa: BLE001 - whatever keeps a server from answering is the finding
            errors.seek(0)
            said = harmless_line(errors.read()[-2_000:]) or f"{type(exc).__name__}: {exc}"
            checks.append(Check("start", "fail", said, "run it by hand: it says more on standard error"))
    return checks


async def _asked(launch: Launch, env: Mapping[str, str], errors: Any, tell: Callable[[str], None]) -> list[Check]:
    server = StdioServerParameters(command=launch.command, args=list(launch.args), env=dict(env), cwd="/")
    info = Implementation(name="sbx-doctor", version=__version__)
    async with Client(stdio_client(server, errlog=errors), client_info=info, read_timeout_seconds=_CALL_S) as client:
        tools = (await client.list_tools()).tools
        told = client.server_info
        version = told.version if told is not None else "?"
        found = [
            Check("start", "ok", f"sbx {version} speaks {client.protocol_version}"),
            Check("tools", "ok" if tools else "fail", counted(len(tools), "tool")),
        ]
        if any(tool.name == "runtime_check" for tool in tools):
            tell(f"asking it what works here, at most {_CALL_S:.0f} s")
            found += _reported(await client.call_tool("runtime_check", {}))
        return found


def _reported(result: Any) -> list[Check]:
    content = result.content[0]
    document = json.loads(content.text) if isinstance(content, TextContent) else {}
    if not document.get("ok"):
        error = document.get("error", {})
        return [Check("runtime", "fail", str(error.get("message")), str(error.get("hint") or ""))]
    return [
        Check(str(one["name"]), one["status"], str(one["words"]), str(one.get("hint", "")))
        for one in document["data"]["checks"]
    ]
