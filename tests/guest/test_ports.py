"""What listens in a sandbox, told as it changes and in silence else."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import httpx

from sbxtui.guest.ports import Told, ports_followed, ports_now
from sbxtui.guest.transport import Transport
from tests.support.guest_process import GuestProcess

LISTENS = "exec python3 -c \"import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(600)\""


def of_python(told: Told) -> list[dict[str, Any]]:
    """What programs of this guest listen on; without isolation it sees the machine's other sockets, too."""
    return [one for one in told if one["process"] == "python3"]


async def test_who_follows_hears_of_each_port_that_comes_and_goes(guest: GuestProcess) -> None:
    async with (
        asyncio.timeout(60),
        httpx.AsyncClient(base_url=guest.url, timeout=30) as http,
        Transport(guest.url, None) as transport,
        aclosing(ports_followed(transport)) as followed,
    ):
        assert of_python(await anext(followed)) == []
        (await http.post("/v2/jobs", json={"id": "listens", "shell": LISTENS})).raise_for_status()
        while not (found := of_python(await anext(followed))):
            pass
        assert [one["addresses"] for one in found] == [["127.0.0.1"]]
        assert [one["port"] for one in of_python(await ports_now(transport))] == [found[0]["port"]]
        await http.post("/v2/jobs/listens/signal", json={"sig": "KILL", "to": "tree"})
        while of_python(await anext(followed)):
            pass
