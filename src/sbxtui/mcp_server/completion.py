"""Completion of arguments: names of sandboxes, of their commands and files, of images."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from sbxtui.core.errors import SbxError
from sbxtui.mcp_server.catalog import TOOLS
from sbxtui.wiring import Services

MOST = 100
_PATIENCE_S = 5.0


async def completed(services: Services, argument: str, begun: str, known: Mapping[str, str]) -> list[str]:
    """What an argument may be that begins so; nothing where that cannot be told in a moment.

    Args:
        services: Of the client.
        argument: Its name.
        begun: What is there of it.
        known: The other arguments.
    """
    look = _LOOKS.get(argument)
    if look is None:
        return []
    try:
        async with asyncio.timeout(_PATIENCE_S):
            found = await look(services, begun, known)
    except (SbxError, TimeoutError):
        return []
    return sorted({one for one in found if one.startswith(begun)})


async def _names(services: Services, begun: str, known: Mapping[str, str]) -> list[str]:
    rows = await asyncio.to_thread(services.registry.list, services.context.name)
    return [row.name for row in rows]


async def _jobs(services: Services, begun: str, known: Mapping[str, str]) -> list[str]:
    sandbox_id = None
    if name := known.get("name"):
        sandbox_id = (await services.sandboxes.find(name)).id
    return [job.id for job in await services.jobs.known(services.context.name, sandbox_id)]


async def _paths(services: Services, begun: str, known: Mapping[str, str]) -> list[str]:
    folder, slash, _ = begun.rpartition("/")
    row = await services.sandboxes.find(known.get("name", ""))
    entries, _ = await services.files.list(row, f"{folder}{slash}" or ".")
    return [f"{folder}{slash}{one.path}{'/' if one.kind == 'dir' else ''}" for one in entries]


async def _tools(services: Services, begun: str, known: Mapping[str, str]) -> list[str]:
    return [tool.name for tool in TOOLS]


async def _images(services: Services, begun: str, known: Mapping[str, str]) -> list[str]:
    plane = await services.planes.open(services.context)
    return [image.name for image in await plane.images()]


_LOOKS: Mapping[str, Callable[[Services, str, Mapping[str, str]], Awaitable[list[str]]]] = {
    "name": _names,
    "job": _jobs,
    "path": _paths,
    "image": _images,
    "tool": _tools,
}
