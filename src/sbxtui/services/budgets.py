"""Budgets: what a sandbox may cost in all, and what happens when that is spent.

A budget given at its launch lowers its maximum duration, which the platform keeps whatever happens here. One given to a
running sandbox is a link that the runner acts on: it warns at 80 %, suspends at 100 %, and needs this machine for that.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sbxtui.core.errors import UsageError
from sbxtui.core.life import BUDGET, bill_of
from sbxtui.core.model import Registration, Sandbox, SandboxState
from sbxtui.home import Home
from sbxtui.services.inventory import Inventories
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.runnerctl import start_runner
from sbxtui.services.sandboxes import Sandboxes
from sbxtui.services.standing import is_wanted, rest
from sbxtui.store.doorbell import Listener
from sbxtui.store.events import Events
from sbxtui.store.links import Link, Links, Wanted
from sbxtui.store.registry import Registry

KIND = "budget"
WARN_AT = 0.8
_LOOK_EVERY_S = 10.0
_LOOK_EVERY_MIN_S = 0.2


class Budgets:
    """Budgets of sandboxes of one context."""

    def __init__(
        self,
        home: Home,
        planes: ControlPlanes,
        inventories: Inventories,
        sandboxes: Sandboxes,
        registry: Registry,
        links: Links,
        events: Events,
        actor: str,
    ) -> None:
        self._home = home
        self._planes = planes
        self._inventories = inventories
        self._sandboxes = sandboxes
        self._registry = registry
        self._links = links
        self._events = events
        self._actor = actor

    async def set(self, row: Registration, usd: float, *, terminates: bool = False) -> Link:
        """Give a sandbox a budget, in place of the one it had.

        Args:
            row: Which.
            usd: For all of its life, what it has cost so far included.
            terminates: End it when that is spent, instead of suspending it.

        Raises:
            UsageError: An amount that cannot be.
        """
        if not 0 < usd < 1_000_000:
            raise UsageError(f"a budget of ${usd:g} is not possible", hint="an amount in USD, like 2.50")
        await self.clear(row)
        spec = {"usd": usd, "terminates": terminates}
        link = await asyncio.to_thread(
            lambda: self._links.take(
                context=row.context,
                kind=KIND,
                sandbox=row.name,
                sandbox_id=row.id,
                spec=spec,
                owner="",
                actor=self._actor,
                is_detached=True,
            )
        )
        facts = {BUDGET: usd}
        await asyncio.to_thread(self._registry.change_facts, row.context, row.name, facts, actor=self._actor)
        start_runner(self._home)
        return link

    async def clear(self, row: Registration) -> bool:
        """Take a budget back; False when there was none. What the launch was given for one stays."""
        link = await asyncio.to_thread(self._links.find, row.context, KIND, row.id)
        if link is None:
            return False
        await asyncio.to_thread(self._links.leave, link, link.owner)
        await asyncio.to_thread(lambda: self._links.forget(link, actor=self._actor))
        await asyncio.to_thread(self._registry.change_facts, row.context, row.name, {BUDGET: None}, actor=self._actor)
        return True

    def list(self, context: str) -> list[Link]:
        """All of them."""
        return self._links.list(KIND, context)

    async def run(self, row: Registration, link: Link) -> None:
        """Watch a budget until it is taken back; what the runner does."""
        context = self._planes.context(row.context)
        scale = self._planes.time_scale(context)
        pause_s = max(_LOOK_EVERY_MIN_S, _LOOK_EVERY_S / scale)
        async with Listener(self._home) as bell:
            while await is_wanted(self._links, link):
                inventory = await self._inventories.live(context)
                sandbox = next((one for one in inventory.sandboxes if one.id == row.id), None)
                if inventory.error is None and (sandbox is None or sandbox.state.is_gone):
                    await asyncio.to_thread(lambda: self._links.want(link, Wanted.STOPPED, actor=self._actor))
                    return
                if sandbox is not None and inventory.error is None:
                    await self._judge(
                        row, link, sandbox, bill_of(context, sandbox, (), datetime.now(UTC), scale=scale).cost.so_far
                    )
                await rest(self._links, link, bell, pause_s)

    async def _judge(self, row: Registration, link: Link, sandbox: Sandbox, spent: float) -> None:
        usd = float(link.spec["usd"])
        found = await asyncio.to_thread(self._links.find, link.context, link.kind, link.sandbox_id)
        before = found.status if found is not None else {}
        is_warned, is_spent = spent >= WARN_AT * usd, spent >= usd
        told: dict[str, object] = {
            "spent_usd": round(spent, 6),
            "share": round(spent / usd, 4),
            "warned": is_warned,
            "spent": is_spent,
        }
        # Written before it is acted upon: a runner that is killed in between must not tell it twice.
        await asyncio.to_thread(self._links.say, link, told)
        if is_warned and not before.get("warned"):
            await self._note(link, "budget.warning", told)
        if not is_spent:
            return
        if not before.get("spent"):
            await self._note(link, "budget.spent", told)
        if link.spec.get("terminates"):
            await self._sandboxes.remove(row)
        elif sandbox.state is SandboxState.RUNNING:
            await self._sandboxes.suspend(row)

    async def _note(self, link: Link, kind: str, told: dict[str, object]) -> None:
        data = {"budget_usd": link.spec["usd"], "spent_usd": told["spent_usd"]}
        await asyncio.to_thread(
            lambda: self._events.record(
                context=link.context, kind=kind, subject=link.sandbox, actor=self._actor, data=data
            )
        )
