"""Trouble reaches people: each event in words, and the hook command run once, however many faces hear of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

from sbxtui.services.alarms import Alarms
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from tests.support.fake_services import home_at

DEADLINE_S = 30


async def test_two_faces_hear_of_it_and_the_hook_is_run_once_with_the_event(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    store = Store.open(home)
    events = Events(store)
    heard = tmp_path / "heard"
    hook = f"cat >> {heard}; echo done >> {heard}.done"
    seen = events.record(context="local", kind="trouble.disk", subject="old", actor="watch", data={"percent": 91})

    async def hear() -> str:
        async with aclosing(Alarms(home, Events(store), hook).follow(seen)) as troubles:
            async for _, words in troubles:
                return words
        return ""

    try:
        async with asyncio.timeout(DEADLINE_S):
            faces = [asyncio.create_task(hear()) for _ in range(2)]
            events.record(context="local", kind="sandbox.tracked", subject="api", actor="cli:you", data={})
            events.record(context="local", kind="trouble.disk", subject="api", actor="watch", data={"percent": 97})
            assert await asyncio.gather(*faces) == ["api: its disk is 97 % full"] * 2
            while not Path(f"{heard}.done").exists():
                await asyncio.sleep(0.05)
    finally:
        store.close()
    (told,) = [json.loads(line) for line in heard.read_text().splitlines()]
    assert (told["kind"], told["subject"], told["words"]) == ("trouble.disk", "api", "api: its disk is 97 % full")
    assert Path(f"{heard}.done").read_text() == "done\n"
