"""What the selected sandbox may cost, and for how long it is kept awake: asks, and hands over to the background."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sbxtui.core.errors import UsageError
from sbxtui.core.life import BUDGET
from sbxtui.core.model import Registration, Sandbox
from sbxtui.core.pricing import usd_of
from sbxtui.tui.screens.keeping import Keeping
from sbxtui.tui.working import worker

if TYPE_CHECKING:
    from sbxtui.services.awake import AwakeSpec


class Living(Keeping):
    """Budgets and keeping awake; both are links that the runner acts on."""

    def do_keep_awake(self) -> None:
        """Ask until when."""
        from sbxtui.tui.screens.ask import AskScreen

        if (target := self._named()) is None:
            return

        def answered(until: str | None) -> None:
            if until is not None:
                self.start_keeping_awake(self._begin("keeping awake", [target]), target, until)

        def line(until: str) -> str:
            return f"sbx keep-awake {target.name} " + (f"--until {until}" if until else "--stop")

        title = f"Keep {target.name} awake until"
        hint = "job, 2h, or a time; empty lets it fall asleep"
        self.app.push_screen(AskScreen(title, line=line, check=_until_problem, hint=hint), answered)

    def do_budget(self) -> None:
        """Ask how much."""
        from sbxtui.tui.screens.ask import AskScreen

        if (target := self._named()) is None:
            return
        had = target.facts.get(BUDGET)

        def answered(usd: str | None) -> None:
            if usd is not None:
                self.start_budget(self._begin("budgeting", [target]), target, usd)

        def line(usd: str) -> str:
            return f"sbx budget {target.name} {usd or '--clear'}"

        title = f"{target.name} is suspended when it has cost, in USD"
        value = f"{had:g}" if isinstance(had, int | float) else ""
        self.app.push_screen(AskScreen(title, value, line=line, check=_usd_problem, hint="empty: no budget"), answered)

    @worker(group="change")
    async def start_keeping_awake(self, work: str, target: Sandbox, until: str) -> None:
        """Keep a sandbox awake, or let it fall asleep again."""

        async def act(row: Registration) -> str:
            if not until:
                was_kept = await self.services.keep_awake.stop(row)
                return "it may fall asleep again" if was_kept else "nothing kept it awake"
            from sbxtui.services.awake import until_words

            return until_words(await self.services.keep_awake.start(row, _spec(until)))

        await self._change(work, "kept awake" if until else "let sleep", [target], act)

    @worker(group="change")
    async def start_budget(self, work: str, target: Sandbox, usd: str) -> None:
        """Give a sandbox a budget, or take it back."""

        async def act(row: Registration) -> str:
            if not usd:
                had_one = await self.services.budgets.clear(row)
                return "it has no budget any more" if had_one else "it had no budget"
            await self.services.budgets.set(row, usd_of(usd))
            return f"{usd} USD; that needs this machine"

        await self._change(work, "budgeted", [target], act)


def _spec(until: str) -> AwakeSpec:
    from sbxtui.services.awake import awake_spec

    return awake_spec(until, datetime.now(UTC))


def _until_problem(until: str) -> str:
    try:
        if until:
            _spec(until)
    except UsageError as exc:
        return f"{exc.message}: {exc.hint}"
    return ""


def _usd_problem(usd: str) -> str:
    try:
        if usd:
            usd_of(usd)
    except UsageError as exc:
        return exc.message
    return ""
