"""The one-line bars: header, status and keys."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

from rich.cells import cell_len
from textual import on
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from sbxtui.core.life import first_end_words, money_words
from sbxtui.core.model import Context, ContextKind, Sandbox
from sbxtui.core.pricing import least_usd_per_hour
from sbxtui.core.text import harmless_line
from sbxtui.tui import clock
from sbxtui.tui.actions import Action
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.keymap import footer_actions
from sbxtui.tui.words import counts_text, is_isolated
from sbxtui.tui.working import worker

# How long the status line tells of what was done.
_TOLD_S = 10.0
_SUMMED_EVERY = timedelta(seconds=10)
_FEW = 50
# What all cost, the longest wording first, and which ends first.
Sums = tuple[list[str], str]
_ASIDE = re.compile(r" \([^()]*\)")


class Bar(Static):
    """One line that is redrawn only when its text changes."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: Content | None = None

    def say(self, content: Content) -> None:
        """Show `content`."""
        if content != self._shown:
            self._shown = content
            self.update(content, layout=False)


class Summed(Message):
    """What many cost was added up."""

    def __init__(self, sums: Sums) -> None:
        super().__init__()
        self.sums = sums


class Header(Bar):
    """Where we are: context, isolation in words, counts, what is paid and was, and how long machines live."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._summed: Sums = ([], "")
        self._summed_at: datetime | None = None
        self._again: Callable[[], None] = lambda: None

    def on_resize(self) -> None:
        # The screen hears of its new size before this has it.
        self._again()

    def tick(self) -> None:
        """A second went by: what is paid grows, and an end comes nearer."""
        if any(self._summed) and self._is_due(clock.now()):
            self._again()

    def show(self, fleet: Fleet, isolation: str, *, is_read_only: bool) -> None:
        """Draw it for the fleet's context."""
        self._again = partial(self.show, fleet, isolation, is_read_only=is_read_only)
        limits = "read-only  " * is_read_only
        if fleet.context is None:
            self._summed, self._summed_at = ([], ""), None
            self.workers.cancel_group(self, "sum")
            self.say(Content.assemble((" sbx  ", "bold $sbx-key"), (limits, "bold $sbx-warn")))
            return
        place, tone = isolation_words(fleet.context, isolation)
        name = context_words(fleet.context)
        least = len(" sbx  ") + cell_len(name) + 2 * len("  ") + len(limits)
        if least + cell_len(place) + len(counts_text(fleet.all)) >= self.size.width:
            # How it is done may go before how many there are.
            place = _ASIDE.sub("", place)
        room = max(0, self.size.width - least - cell_len(place) - 1)
        facts = counts_text(fleet.all, room)
        money, first_end = self._sum(fleet, fleet.context)
        for wordings in money_and_life(fleet.context, fleet.all, money, first_end):
            # What does not fit is left out whole: half a price would be a wrong one.
            facts += next((f"  {one}" for one in wordings if one and len(facts) + 2 + len(one) <= room), "")
        self.say(
            Content.assemble(
                (" sbx  ", "bold $sbx-key"),
                (name, "bold"),
                ("  ", ""),
                (place, f"$sbx-{tone}"),
                ("  ", ""),
                (limits, "bold $sbx-warn"),
                (facts, "$sbx-muted"),
            )
        )

    def _sum(self, fleet: Fleet, context: Context) -> Sums:
        """Of many added up now and then only, and beside: with thousands of sandboxes a key would be echoed late."""
        now = clock.now()
        if len(fleet.all) <= _FEW:
            self._summed, self._summed_at = _sums(context, fleet.all, now), now
        elif self._is_due(now):
            self._summed_at = now
            self._sum_many(context, fleet.all, now)
        return self._summed

    def _is_due(self, now: datetime) -> bool:
        return self._summed_at is None or now - self._summed_at >= _SUMMED_EVERY

    @worker(exclusive=True, group="sum")
    async def _sum_many(self, context: Context, sandboxes: Sequence[Sandbox], now: datetime) -> None:
        self.post_message(Summed(await asyncio.to_thread(_sums, context, sandboxes, now)))

    @on(Summed)
    def summed(self, message: Summed) -> None:
        """Tell it."""
        if message.sums != self._summed:
            self._summed = message.sums
            self._again()


def _sums(context: Context, sandboxes: Sequence[Sandbox], now: datetime) -> Sums:
    return money_words(context, sandboxes, now), first_end_words(sandboxes, now)


def money_and_life(context: Context, sandboxes: Sequence[Sandbox], money: list[str], first_end: str) -> list[list[str]]:
    """What running costs an hour at the least, what all cost so far, and what ends first; wordings of each, or none.

    A local cloud costs nothing: of it is told what the same would cost on AWS.
    """
    price = least_usd_per_hour(context, sandboxes)
    hourly = f"at least ${price:.2f}/h" if price is not None else ""
    # No machine of the platform lives longer than this, whatever it does.
    cap = "each ends after 8h" * (context.kind is ContextKind.AWS)
    return [[hourly], money, [first_end or cap]]


def context_words(context: Context) -> str:
    """A context's name with account and region where it has them."""
    if context.kind is ContextKind.LOCAL:
        return harmless_line(context.name)
    parts = [context.name, f"…{context.account_id[-4:]}" if context.account_id else "", context.region]
    return harmless_line(" ".join(part for part in parts if part))


def isolation_words(context: Context, isolation: str) -> tuple[str, str]:
    """Isolation in words, and the tone that repeats how much to trust it."""
    if isolation:
        return harmless_line(isolation), "good" if is_isolated(isolation) else "warn"
    if context.kind is ContextKind.LOCAL:
        return "local cloud not running yet", "muted"
    return "isolation not known", "warn"


class StatusBar(Bar):
    """What is being done and for how long; else the marks; else what was done last."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._works: dict[str, tuple[str, float]] = {}
        self._last: tuple[str, str] = ("", "muted")
        self._ended = 0.0
        self._marks = 0

    @property
    def works(self) -> list[str]:
        """What is being done now, in words."""
        return [words for words, _ in self._works.values()]

    def begin(self, work: str, words: str) -> None:
        """A piece of work began, or now does something else."""
        _, since = self._works.get(work, ("", monotonic()))
        self._works[work] = (harmless_line(words), since)
        self._draw()

    def end(self, work: str, words: str, tone: str = "muted") -> None:
        """A piece of work ended with `words`."""
        self._works.pop(work, None)
        self._last = (harmless_line(words), tone)
        self._ended = monotonic()
        self._draw()

    def set_marks(self, marks: int) -> None:
        """Say how many sandboxes are marked."""
        self._marks = marks
        self._draw()

    def tick(self) -> None:
        """A second went by."""
        if self._works or self._last[0]:
            self._draw()

    def _draw(self) -> None:
        """Draw it as of now; what was done last is told for a while only."""
        if monotonic() - self._ended > _TOLD_S:
            self._last = ("", "muted")
        self.say(self._content())

    def _content(self) -> Content:
        if self._works:
            words, since = next(iter(self._works.values()))
            more = f"  and {len(self._works) - 1} more" if len(self._works) > 1 else ""
            return Content.assemble((f" {words} … {monotonic() - since:.0f}s{more}", "$sbx-busy"))
        if self._marks:
            return Content.assemble(
                (f" {self._marks} marked", "bold"), ("   p pause   d remove   esc clear", "$sbx-muted")
            )
        words, tone = self._last
        return Content.assemble((f" {words}", f"$sbx-{tone}"))


class KeyBar(Bar):
    """The keys that work where the focus is; a click does the same."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._here: Sequence[Action] = ()

    def show(self, here: Sequence[Action]) -> None:
        """Show the most useful of the actions that work here."""
        self._here = here
        self.say(Content(" ") + Content(" ").join(_key(action) for action in footer_actions(self.size.width, here)))

    def on_resize(self) -> None:
        self.show(self._here)


def _key(action: Action) -> Content:
    # Keys and labels are our own words, so that markup is safe here.
    key = action.shown_key.replace("[", r"\[")
    return Content.from_markup(f"[@click=screen.do('{action.id}')][bold $sbx-key]{key}[/] {action.label} [/]")
