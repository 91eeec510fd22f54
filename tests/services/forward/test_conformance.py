"""HTTP and WebSocket through a forward come as they were sent, through a tunnel and through an endpoint."""

from __future__ import annotations

import asyncio

from tests.guest.conftest import guest, warm_guest
from tests.localcloud.conftest import cloud, endpoint
from tests.localcloud.endpoint import Endpoint
from tests.services.forward.origin import running_origin
from tests.services.forward.probes import PROBES, Place
from tests.support.forwarding import forwarded, proxied
from tests.support.guest_process import GuestProcess

__all__ = ["cloud", "endpoint", "guest", "warm_guest"]
# Of one probe; those that pass take milliseconds.
LIMIT_S = 30.0


async def failures_at(place: Place) -> dict[str, str]:
    """What each probe that does not hold says."""
    failed: dict[str, str] = {}
    for name, probe in PROBES.items():
        try:
            async with asyncio.timeout(LIMIT_S):
                await probe(place)
        except Exception as exc:  # noqa: BLE001 - each is told, whatever it is
            failed[name] = repr(exc)[:300]
    return failed


async def test_all_33_probes_hold_through_a_tunnel(guest: GuestProcess) -> None:
    async with (
        running_origin() as origin,
        forwarded(guest.url, origin.port) as plain,
        forwarded(guest.url, origin.ws_port) as sockets,
    ):
        assert await failures_at(Place(origin, plain.local_port, sockets.local_port)) == {}
    assert len(PROBES) == 33


async def test_all_33_probes_hold_through_an_endpoint(endpoint: Endpoint) -> None:
    async with (
        running_origin() as origin,
        proxied(endpoint.address, origin.port, tokens=[endpoint.token], verify=endpoint.context()) as plain,
        proxied(endpoint.address, origin.ws_port, tokens=[endpoint.token], verify=endpoint.context()) as sockets,
    ):
        assert await failures_at(Place(origin, plain.local_port, sockets.local_port)) == {}
