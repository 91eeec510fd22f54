"""The runner's life: single by lock, driven by the store, gone when nothing needs it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sbxtui.home import Home
from sbxtui.identity import own_identity
from sbxtui.runner.child import Child
from sbxtui.runner.reconcile import needs_runner, reconcile
from sbxtui.runner.serving import detached_links
from sbxtui.runner.single import single
from sbxtui.services.runnerctl import runner_file
from sbxtui.settings import load
from sbxtui.store.db import Store
from sbxtui.store.doorbell import Listener
from sbxtui.store.registry import Registry

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
# The module that acts on the links of a kind.
_CHILDREN = {"sync": "syncs", "forward": "forwards", "keep-awake": "awakes", "budget": "budgets"}
# A face that starts the runner reserves its row a moment later.
_PATIENCE_LOOKS = 10


def main() -> int:
    """Run until nothing needs a runner, or SIGTERM; returns 0, also when another runner is there already."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    settings = load()
    with single(settings.home, "runner") as is_ours:
        if is_ours:
            with _told(settings.home):
                asyncio.run(_serve(settings.home))
    return 0


async def _serve(home: Home) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    settings = load()
    store = Store.open(home)
    idle_looks = 0
    children = {kind: Child(home, name) for kind, name in _CHILDREN.items()}
    try:
        async with Listener(home, poll_s=_LOOK_EVERY_S) as listener:
            while not stopping.is_set() and idle_looks < _PATIENCE_LOOKS:
                rows = await asyncio.to_thread(Registry(store).list)
                await _first(reconcile(settings, rows), stopping.wait())
                has_links = False
                for kind, child in children.items():
                    is_needed = bool(await asyncio.to_thread(detached_links, store, kind))
                    child.keep(is_needed)
                    has_links = has_links or is_needed
                idle_looks = 0 if has_links or needs_runner(rows) else idle_looks + 1
                # A dead owner rings no bell, so each wait is short.
                await _first(listener.wait(_LOOK_EVERY_S), stopping.wait())
    finally:
        await asyncio.gather(*(asyncio.to_thread(child.end) for child in children.values()))
        store.close()


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _told(home: Home) -> Iterator[None]:
    """Say who we are for as long as the block lasts."""
    file = runner_file(home)
    handle, temporary = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "w") as out:
        json.dump({"identity": str(own_identity())}, out)
    Path(temporary).replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
