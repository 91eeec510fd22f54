"""What keeps sandboxes awake and what they may cost, behind the shape of the services; `done` says what was asked."""

from __future__ import annotations

from datetime import UTC, datetime

from sbxtui.core.life import KEEP_AWAKE
from sbxtui.core.model import Registration
from sbxtui.services.awake import AwakeSpec
from sbxtui.store.links import Link, Wanted


class FakeKeepAwake:
    """Keeps nothing awake."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    async def start(self, row: Registration, spec: AwakeSpec) -> Link:
        self._done.append(f"awake {row.name} {'job' if spec.until is None else 'time'}")
        now = datetime.now(UTC)
        names = (row.context, KEEP_AWAKE, row.name, row.id)
        return Link(*names, spec.as_row(), Wanted.RUNNING, True, "", {}, now, now)

    async def stop(self, row: Registration) -> bool:
        self._done.append(f"sleep {row.name}")
        return True


class FakeBudgets:
    """Suspends nothing."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    async def set(self, row: Registration, usd: float) -> None:
        self._done.append(f"budget {row.name} {usd:g}")

    async def clear(self, row: Registration) -> bool:
        self._done.append(f"no budget {row.name}")
        return False
