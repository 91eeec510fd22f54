"""The runner's life: single by lock, driven by the store, gone when nothing needs it."""

from __future__ import annotations

import asyncio
import fcntl
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

from sbxtui.home import Home, private_dir
from sbxtui.identity import own_identity
from sbxtui.runner.reconcile import needs_runner, reconcile
from sbxtui.services.runnerctl import runner_file
from sbxtui.settings import load
from sbxtui.store.db import Store
from sbxtui.store.doorbell import Listener
from sbxtui.store.registry import Registry

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
# A face that starts the runner reserves its row a moment later.
_PATIENCE_LOOKS = 10


def main() -> int:
    """Run until nothing needs a runner, or SIGTERM; returns 0, also when another runner is there already."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    settings = load()
    with _single(settings.home) as is_ours:
        if is_ours:
            asyncio.run(_serve(settings.home))
    return 0


async def _serve(home: Home) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    settings = load()
    store = Store.open(home)
    idle_looks = 0
    try:
        async with Listener(home, poll_s=_LOOK_EVERY_S) as listener:
            while not stopping.is_set() and idle_looks < _PATIENCE_LOOKS:
                rows = await asyncio.to_thread(Registry(store).list)
                await _first(reconcile(settings, rows), stopping.wait())
                idle_looks = 0 if needs_runner(rows) else idle_looks + 1
                # A dead owner rings no bell, so each wait is short.
                await _first(listener.wait(_LOOK_EVERY_S), stopping.wait())
    finally:
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
def _single(home: Home) -> Iterator[bool]:
    """Hold the lock of this home's runner and say who we are; yields False when another one does."""
    private_dir(home.state_dir)
    with (home.state_dir / "runner.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        file = runner_file(home)
        _write(file, {"identity": str(own_identity())})
        try:
            yield True
        finally:
            file.unlink(missing_ok=True)


def _write(file: Path, facts: dict[str, str]) -> None:
    handle, temporary = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "w") as out:
        json.dump(facts, out)
    Path(temporary).replace(file)
