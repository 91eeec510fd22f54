"""What begins to listen in a sandbox is written down, however long after its command was begun."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sbxtui.core.model import IdlePolicy, Registration, SandboxState
from sbxtui.services.guests import Guests
from sbxtui.services.jobs import Command
from sbxtui.services.ports import KIND
from tests.support.guest_services import guest_scene

LISTENS_LATE = """while ! [ -e go ]; do sleep 0.05; done
exec python3 -c "import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(600)"
"""


async def test_what_a_command_that_was_begun_long_ago_listens_on_is_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def runs(guests: Guests, registration: Registration) -> SandboxState:
        return SandboxState.RUNNING

    monkeypatch.setattr(Guests, "state", runs)
    monkeypatch.setattr("sbxtui.services.ports._LOOK_EVERY_S", 0.05)
    async with asyncio.timeout(60), guest_scene(tmp_path) as scene:
        # Half of no idle window is over at once.
        row = replace(scene.row, request=replace(scene.row.request, idle=IdlePolicy(0, 60)))
        await scene.real.jobs.start(row, Command(["sh", "-c", LISTENS_LATE]))
        watching = asyncio.create_task(scene.real.ports.watch(row))
        (scene.guest.workdir / "go").touch()
        try:
            while "python3" not in [one.data.get("process") for one in scene.real.events.tail() if one.kind == KIND]:
                await asyncio.sleep(0.05)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
