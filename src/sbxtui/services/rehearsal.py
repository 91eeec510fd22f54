"""Faults on purpose in the local cloud, so that programs and people can practise what AWS does on bad days."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sbxtui.control.extension import ask_local_cloud
from sbxtui.core.errors import NotFound, SandboxNotFound
from sbxtui.core.text import harmless_line
from sbxtui.services.planes import ControlPlanes


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One fault. `amount` is milliseconds of latency, bytes before a drop, else seconds; `left` None: for ever."""

    id: str
    kind: str
    operation: str
    rate: float
    seed: int
    amount: float
    left: int | None
    fired: int


class Rehearsal:
    """The faults of this home's local cloud; they end with its process."""

    def __init__(self, planes: ControlPlanes) -> None:
        self._planes = planes

    async def add(self, kind: str, operation: str, *, rate: float, seed: int, amount: float, times: int) -> FaultRule:
        """Have calls of an operation (`endpoint` for a sandbox's, or a pattern with `*`) go wrong from now on.

        Args:
            kind: What goes wrong, as the local cloud names it.
            operation: Which calls.
            rate: The share of them, 0 to 1.
            seed: The same one chooses the same calls again.
            amount: As `FaultRule` has it.
            times: How often at most; 0: for ever.

        Raises:
            UsageError: There is no such fault.
        """
        asked = {"kind": kind, "operation": operation, "rate": rate, "seed": seed, "amount": amount, "times": times}
        return _rule_of(await self._ask("PUT", "", asked))

    async def list(self) -> builtins.list[FaultRule]:
        """All of them, oldest first."""
        return [_rule_of(raw) for raw in (await self._ask("GET", ""))["faults"]]

    async def clear(self, rule_id: str = "") -> None:
        """Take one away, or all.

        Raises:
            NotFound: There is none of that id.
        """
        try:
            await self._ask("DELETE", f"/{rule_id}" if rule_id else "")
        except SandboxNotFound as exc:
            raise NotFound(f"there is no fault `{rule_id}`", hint="`sbx local fault ls` lists them") from exc

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        cloud = await self._planes.local_cloud()
        return await ask_local_cloud(cloud, method, f"/faults{path}", body=body)


def _rule_of(raw: Mapping[str, Any]) -> FaultRule:
    return FaultRule(
        id=harmless_line(str(raw["id"])),
        kind=harmless_line(str(raw["kind"])),
        operation=harmless_line(str(raw["operation"])),
        rate=float(raw["rate"]),
        seed=int(raw["seed"]),
        amount=float(raw["amount"]),
        left=None if raw["left"] is None else int(raw["left"]),
        fired=int(raw["fired"]),
    )
