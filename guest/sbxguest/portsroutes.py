"""`GET /v2/ports`: what listens in this sandbox; the guest itself is left out."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict

from sbxguest import kernel
from sbxguest.app import Request, Response, Route
from sbxguest.filepool import in_thread
from sbxguest.listening import Listening, listening, listening_inodes

_EVERY_S = 2.0

Find = Callable[[], list[Listening]]


async def ports(request: Request) -> Response:
    """GET /v2/ports[?follow=1]: `{ports: [{port, addresses, pid, process, since_s}]}`, by number.

    Followed, it is such a line now and one at each change. While nothing changes it is silent: watching must not keep a
    sandbox awake.
    """
    guest = request.guest
    # Without isolation the list is the whole machine's: only what the jobs started counts then.
    is_shared = guest.state.settings.isolation.startswith("process")
    own_ports = guest.tunnels.own_ports

    def find() -> list[Listening]:
        started = kernel.descendants(os.getppid()).keys() - {os.getpid()}
        found = listening(pids=started) if is_shared else listening()
        return [one for one in found if one.port not in own_ports and (not one.pid or one.pid in started)]

    if request.flag("follow"):
        return Response(200, _lines(find), "application/x-ndjson", (("cache-control", "no-store"),))
    return Response(200, _line(await in_thread(find)), "application/json")


async def _lines(find: Find) -> AsyncGenerator[bytes, None]:
    told: list[tuple[int, int, tuple[str, ...]]] | None = None
    while True:
        sockets = await in_thread(listening_inodes)
        found = await in_thread(find)
        if (news := [(one.port, one.pid, one.addresses) for one in found]) != told:
            told = news
            yield _line(found)
        while await in_thread(listening_inodes) == sockets:
            await asyncio.sleep(_EVERY_S)


def _line(found: list[Listening]) -> bytes:
    return json.dumps({"ports": [asdict(one) for one in found]}, separators=(",", ":")).encode() + b"\n"


ROUTES = (Route("GET", "/v2/ports", ports),)
