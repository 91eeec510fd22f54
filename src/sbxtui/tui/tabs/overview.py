"""Tab 1: everything known of the selected sandbox, with the source of what may be old."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from textwrap import wrap

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content

from sbxtui.core.life import BUDGET, CAP_TOLD, LIVED, bill_of, life_of, life_words
from sbxtui.core.model import ContextKind, Sandbox, SandboxRecord
from sbxtui.core.pricing import CENT_USD, usd_text
from sbxtui.core.text import harmless_line, reason_words, short_age
from sbxtui.core.troubles import TOLD
from sbxtui.tui import clock
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.tabs.base import Tab, View
from sbxtui.tui.widgets.facts import Facts
from sbxtui.tui.words import (
    is_isolated,
    isolation_text,
    network_text,
    shown_name,
    size_text,
    state_text,
    state_tone,
    why_text,
)

_LABEL_WIDTH = 11
_IN_SECONDS = re.compile(r"\b\d+s\b")
_AGES_EVERY = timedelta(seconds=10)
# Padding on both sides, and the scrollbar.
_ASIDE_WIDTH = 3
# Shown by rows of their own, or private: a launch may hold environment variables.
_KNOWN_FACTS = frozenset(
    (
        "network",
        "memory_mib",
        "workdir",
        "env_names",
        "guest_version",
        "isolation",
        "launch",
        "ended",
        "kills_noted",
        LIVED,
        BUDGET,
        CAP_TOLD,
        TOLD,
    )
)


class OverviewTab(Tab):
    """Facts as label and value, one a line."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._told: tuple[list[tuple[str, str, str]], int] | None = None
        self._view: View | None = None
        self._shown_at = clock.now()

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="facts-body", can_focus=True):
            yield Facts(id="facts")

    def first_inside(self) -> VerticalScroll:
        """What scrolls."""
        return self.query_one("#facts-body", VerticalScroll)

    def show(self, view: View) -> None:
        """Show the sandbox under the cursor."""
        self._view, self._shown_at = view, clock.now()
        sandbox = view.sandbox
        facts = [] if sandbox is None else list(facts_of(sandbox, view.fleet, view.record, self._shown_at))
        room = max(20, self.size.width - _ASIDE_WIDTH - _LABEL_WIDTH - 1)
        # Most looks tell nothing new.
        if (facts, room) != self._told:
            self._told = (facts, room)
            lines = [_line(*fact, room) for fact in facts]
            text = Content("\n").join(lines or [Content.styled("no sandbox is selected", "$sbx-muted")])
            self.query_one(Facts).say(text)

    def on_resize(self) -> None:
        self._show_again()

    def tick(self) -> None:
        """A second went by: what is told in seconds is another now, what is told in minutes seldom is."""
        facts = self._told[0] if self._told is not None else []
        if any(_IN_SECONDS.search(value) for _, value, _ in facts) or clock.now() - self._shown_at >= _AGES_EVERY:
            self._show_again()

    def _show_again(self) -> None:
        if self._view is not None:
            self.show(self._view)


def facts_of(
    sandbox: Sandbox, fleet: Fleet, record: SandboxRecord | None, now: datetime
) -> Iterator[tuple[str, str, str]]:
    """Label, harmless value and the tone of each fact, in reading order; empty values are left out."""
    last_seen = fleet.last_seen_of(sandbox)
    yield "name", shown_name(sandbox) + ("" if sandbox.is_tracked else "  untracked: `sbx adopt ID NAME`"), ""
    yield "state", _state_words(sandbox, fleet, now), state_tone(sandbox.state)
    failure = fleet.failure_of(sandbox)
    if failure is not None:
        yield "failed", harmless_line(f"{failure.doing}: {failure.error.message}"), "warn"
        yield "do", harmless_line(failure.error.hint), "warn"
    reason = (reason_words(record.state_reason) if record else "") or why_text(sandbox, last_seen, now)
    candidates = [
        ("why", reason, "warn" if state_tone(sandbox.state) in ("warn", "gone") else ""),
        ("id", sandbox.id, ""),
        ("image", f"{sandbox.image_name}  version {sandbox.image_version or '?'}", ""),
        ("size", size_text(sandbox.facts.get("memory_mib")), ""),
        ("network", network_text(sandbox), ""),
        ("isolation", *_isolation_words(sandbox)),
        (
            "created",
            f"{sandbox.created_at.astimezone():%Y-%m-%d %H:%M:%S}  {short_age(now - sandbox.created_at)} ago",
            "",
        ),
        ("endpoint", sandbox.endpoint or (record.endpoint if record else ""), ""),
        ("ends", _end_words(record, fleet), ""),
        ("life", life_words(life_of(sandbox, ()), now), ""),
        ("kept awake", fleet.awake.get(sandbox.id, ""), ""),
        *_cost_rows(sandbox, fleet, now),
        ("guest", str(sandbox.facts.get("guest_version") or ""), ""),
        ("labels", "  ".join(f"{key}={value}" for key, value in sandbox.labels.items()), ""),
        ("image arn", sandbox.image_arn, "muted"),
    ]
    candidates += [(key, str(value), "muted") for key, value in sandbox.facts.items() if key not in _KNOWN_FACTS]
    for label, value, tone in candidates:
        if shown := harmless_line(value):
            yield harmless_line(label, limit=_LABEL_WIDTH), shown, tone


def _state_words(sandbox: Sandbox, fleet: Fleet, now: datetime) -> str:
    if sandbox.seen_at is None:
        return state_text(sandbox.state) + "  the control plane has not told"
    if fleet.is_cached or fleet.error is not None:
        return f"{state_text(sandbox.state)}  as of {short_age(now - sandbox.seen_at)} ago"
    return state_text(sandbox.state)


def _isolation_words(sandbox: Sandbox) -> tuple[str, str]:
    """What the sandbox itself told, and its tone. The context's isolation is that of its next one, not of this one."""
    words = isolation_text(sandbox)
    return words or "unknown: the sandbox has not told it", "" if is_isolated(words) else "warn"


def _cost_rows(sandbox: Sandbox, fleet: Fleet, now: datetime) -> Iterator[tuple[str, str, str]]:
    if fleet.context is None or not sandbox.is_tracked:
        return
    bill = bill_of(fleet.context, sandbox, (), now)
    budget = f", of a budget of {usd_text(bill.budget_usd)}" if bill.budget_usd is not None else ""
    guess = ", an estimate" * bill.cost.is_estimate
    so_far = usd_text(bill.cost.so_far) if bill.cost.so_far >= CENT_USD else "less than a cent"
    words = f"{usd_text(bill.cost.per_hour)} an hour at the least, {so_far} so far{budget}{guess}"
    yield ("cost", words, "") if bill.is_paid else ("on AWS", f"it would cost {words}", "muted")


def _end_words(record: SandboxRecord | None, fleet: Fleet) -> str:
    if record is None:
        return ""
    parts = []
    if record.idle:
        parts.append(
            f"suspended after {record.idle.max_idle_s} s without traffic, ended {record.idle.suspended_s} s later"
        )
    if record.max_duration_s:
        parts.append(f"ended {record.max_duration_s} s after its start at the latest")
    is_local = fleet.context is None or fleet.context.kind is ContextKind.LOCAL
    return "; ".join(parts) or ("only when removed" if is_local else "8 hours after it was created at the latest")


def _line(label: str, value: str, tone: str, room: int) -> Content:
    """A fact on as many lines of `room` cells as it takes, all below each other."""
    lines = wrap(value, room) or [""]
    shown = ("\n" + " " * (_LABEL_WIDTH + 1)).join(lines)
    return Content.assemble((f"{label:<{_LABEL_WIDTH}} ", "$sbx-muted"), (shown, f"$sbx-{tone}" if tone else ""))
