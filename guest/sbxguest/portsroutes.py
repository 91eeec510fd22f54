"""`GET /v2/ports`: what listens in this sandbox; the guest itself is left out."""

from __future__ import annotations

import os
from dataclasses import asdict

from sbxguest import kernel
from sbxguest.app import Request, Response, Route, json_response
from sbxguest.filepool import in_thread
from sbxguest.listening import Listening, listening


async def ports(request: Request) -> Response:
    """GET /v2/ports: `{ports: [{port, addresses, pid, process, since_s}]}`, by number."""
    guest = request.guest
    # Without isolation the list is the whole machine's: only what the jobs started counts then.
    is_shared = guest.state.settings.isolation.startswith("process")
    found = await in_thread(_ports, guest.tunnels.own_ports, is_shared)
    return json_response({"ports": [asdict(one) for one in found]})


def _ports(own_ports: frozenset[int], is_shared: bool) -> list[Listening]:
    started = kernel.descendants(os.getppid()).keys() - {os.getpid()}
    found = listening(pids=started) if is_shared else listening()
    return [one for one in found if one.port not in own_ports and (not one.pid or one.pid in started)]


ROUTES = (Route("GET", "/v2/ports", ports),)
