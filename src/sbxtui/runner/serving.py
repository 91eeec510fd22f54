"""What a child of the runner does: acts on every detached link of its kind, each in a task, while its runner lives."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sbxtui.core.errors import SandboxNotFound, SbxError
from sbxtui.core.model import Registration
from sbxtui.home import Home
from sbxtui.runner.single import single
from sbxtui.services.runnerctl import start_runner
from sbxtui.services.sync.beside import beside
from sbxtui.settings import Settings, load
from sbxtui.store.db import Store
from sbxtui.store.doorbell import Listener
from sbxtui.store.links import Link, Links, Wanted
from sbxtui.wiring import Services

log = logging.getLogger(__name__)

_ACTOR = "runner"
_LOOK_EVERY_S = 1.0
_AGAIN_S = 5.0
_PATIENCE_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Duty:
    """What a child does.

    Attributes:
        name: Of the child: its lock, its module and its log.
        kind: Of the links it acts on.
        act: Acts on one until it is stopped; raises what keeps it from that.
        trouble: What a link's status says while that error holds.
    """

    name: str
    kind: str
    act: Callable[[Services, Registration, Link], Awaitable[None]]
    trouble: Callable[[SbxError], dict[str, object]]


def serve(duty: Duty) -> int:
    """Act until there is nothing to act on, SIGTERM, or the death of the runner; returns 0."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    settings = load()
    runner_pid = os.getppid()
    while os.getppid() == runner_pid:
        with single(settings.home, duty.name) as is_ours:
            if is_ours:
                asyncio.run(_Serving(settings, duty, runner_pid).run())
                break
        # The one of a runner that died is about to end.
        time.sleep(_LOOK_EVERY_S)
    if os.getppid() != runner_pid and _has_links(settings.home, duty.kind):
        start_runner(settings.home)
    return 0


def detached_links(store: Store, kind: str) -> list[Link]:
    """The links of a kind that go on without a face."""
    return [link for link in Links(store).list(kind) if link.is_detached and link.is_wanted]


def _has_links(home: Home, kind: str) -> bool:
    store = Store.open(home)
    try:
        return bool(detached_links(store, kind))
    finally:
        store.close()


class _Serving:
    """The links that are acted on, each by a task."""

    def __init__(self, settings: Settings, duty: Duty, runner_pid: int) -> None:
        self._settings = settings
        self._duty = duty
        self._runner_pid = runner_pid
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._not_before_s: dict[tuple[str, str, str], float] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Act on them until there are none for a while, or this process shall end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)
        store = Store.open(self._settings.home)
        idle_looks = 0
        try:
            async with Listener(self._settings.home, poll_s=_LOOK_EVERY_S) as listener:
                while not self._is_over() and idle_looks < _PATIENCE_LOOKS:
                    links = await asyncio.to_thread(detached_links, store, self._duty.kind)
                    self._start_missing(links)
                    idle_looks = 0 if links or self._tasks else idle_looks + 1
                    await listener.wait(_LOOK_EVERY_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            store.close()

    def _is_over(self) -> bool:
        return self._stopping.is_set() or os.getppid() != self._runner_pid

    def _start_missing(self, links: list[Link]) -> None:
        for key in [key for key, task in self._tasks.items() if task.done()]:
            del self._tasks[key]
        now_s = time.monotonic()
        for link in links:
            key = (link.context, link.sandbox_id, link.kind)
            # What was made anew after its end does not wait as what failed does.
            key_s = self._not_before_s.get(key, 0.0) if link.status else 0.0
            if key not in self._tasks and key_s <= now_s:
                self._not_before_s[key] = now_s + _AGAIN_S
                self._tasks[key] = asyncio.create_task(self._act(link))

    async def _act(self, link: Link) -> None:
        """Act on one link until it is stopped; what keeps it from that is said of it, and it is tried again."""
        services = Services(self._settings, actor=_ACTOR, context_name=link.context)
        try:
            row = await _row_of(services, link)
            async with beside(services.ports.watch(row)):
                await self._duty.act(services, row, link)
        except SandboxNotFound as exc:
            # Its name was given up here, or it has ended: there is nothing to keep true any more.
            log.warning("%s: %s", link.sandbox, exc.message)
            await asyncio.to_thread(lambda: services.links.want(link, Wanted.STOPPED, actor=_ACTOR))
        except SbxError as exc:
            log.warning("%s: %s", link.sandbox, exc.message)
            said = {**link.status, **self._duty.trouble(exc)}
            await asyncio.to_thread(services.links.say, link, said)
        except Exception:
            log.exception("%s", link.sandbox)
        finally:
            services.close()


async def _row_of(services: Services, link: Link) -> Registration:
    """The sandbox of a link, whatever its name is by now; its old name may be another one's.

    Raises:
        SandboxNotFound: It has no name here any more.
    """
    row = await services.sandboxes.find(link.sandbox_id)
    if row.id != link.sandbox_id:
        raise SandboxNotFound(f"sandbox `{link.sandbox_id}` has no name here any more")
    return row
