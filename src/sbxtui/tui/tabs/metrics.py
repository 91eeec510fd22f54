"""The metrics tab: what a sandbox uses, and used in the last hour, for a person's eyes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from sbxtui.core.errors import SbxError
from sbxtui.core.hours import cores_text
from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.sparks import chart, in_columns, rates
from sbxtui.core.text import harmless_line, short_age, short_size
from sbxtui.core.usage import RESTING, Usage
from sbxtui.tui import clock
from sbxtui.tui.actions import SANDBOXES
from sbxtui.tui.fleet import key_of
from sbxtui.tui.tabs.watching import WatchingTab
from sbxtui.tui.words import shown_name, state_text
from sbxtui.tui.working import worker

_EVERY_S = 2.0
_SPANS_S = (300.0, 3600.0)
_LABEL_WIDTH = 10
_FIGURE_WIDTH = 22
_TALL_LINES = 16
_TALL = 4


class Sampled(Message):
    """A sample and the last hour; or None while the sandbox is left alone; or why there is none."""

    def __init__(
        self, key: str, usage: Usage | None, history: Sequence[Usage] = (), error: SbxError | None = None
    ) -> None:
        super().__init__()
        self.key = key
        self.usage = usage
        self.history = history
        self.error = error


class MetricsTab(WatchingTab):
    """Sparklines of the last five minutes, or of the hour where that is what is known."""

    SCOPES: ClassVar[tuple[str, ...]] = (SANDBOXES,)
    WATCH_GROUP = "metrics"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.usage: Usage | None = None
        self._history: Sequence[Usage] = ()
        self._is_resting = False
        self._error: SbxError | None = None
        self._shown: Content | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="metrics-body", can_focus=True):
            yield Static(id="metrics", markup=False)
        yield Static("", id="metrics-status", markup=False)

    def first_inside(self) -> VerticalScroll:
        """What scrolls."""
        return self.query_one("#metrics-body", VerticalScroll)

    def turned(self) -> None:
        """Another sandbox."""
        self.usage, self._history, self._is_resting, self._error = None, (), False, None
        self.draw()

    def begin_watch(self, *, is_asked: bool) -> None:
        """Ask again and again, as far as that keeps nothing awake."""
        if self.sandbox is not None and self.is_watchable:
            self.watch_usage(self.sandbox, is_asked=is_asked)
        else:
            self.end_watch()

    @worker(exclusive=True, group="metrics")
    async def watch_usage(self, sandbox: Sandbox, *, is_asked: bool) -> None:
        """Tell what a sandbox uses for as long as this is looked at."""
        key = key_of(sandbox)
        try:
            metrics = await asyncio.to_thread(lambda: self.services.metrics)
            row = await self.main.row_of(sandbox)
            history = await metrics.last_hour(row)
            self.post_message(Sampled(key, history[-1] if history else None, history))
            if sandbox.state is not SandboxState.RUNNING:
                return
            samples = metrics.follow(row, interval_s=_EVERY_S, is_asked=is_asked)
            async with aclosing(samples):
                async for usage in samples:
                    self.post_message(Sampled(key, usage, await metrics.last_hour(row) if usage else ()))
        except SbxError as exc:
            self.post_message(Sampled(key, None, (), exc))

    @on(Sampled)
    def sampled(self, message: Sampled) -> None:
        """Draw it; what is old stays, with its age."""
        if not self.is_about(message.key):
            return
        self._error = message.error
        self._is_resting = message.usage is None and message.error is None
        if message.usage is not None:
            self.usage, self._history = message.usage, message.history
        self.draw()

    def tick(self) -> None:
        """What is told gets older."""
        self._say()

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw all of it as it is now."""
        content = Content("\n".join(self._lines()))
        if content != self._shown:
            self._shown = content
            self.query_one("#metrics", Static).update(content)
        self._say()

    def _lines(self) -> list[str]:
        usage = self.usage
        if usage is None:
            return []
        width = max(10, self.size.width - _LABEL_WIDTH - _FIGURE_WIDTH - 4)
        is_tall = self.size.height >= _TALL_LINES
        lines: list[str] = []
        for label, figure, of, top, is_total in _rows(usage):
            points = [(one.at.timestamp(), of(one)) for one in self._history]
            columns = in_columns(rates(points) if is_total else points, usage.at.timestamp() + 1, self._span_s, width)
            height = _TALL if is_tall and label in ("cpu", "memory") else 1
            drawn = chart(columns, top=top, height=height)
            lines.append(f"{label:<{_LABEL_WIDTH}}{figure:<{_FIGURE_WIDTH}}{drawn[0]}")
            lines += [" " * (_LABEL_WIDTH + _FIGURE_WIDTH) + line for line in drawn[1:]]
            if label == "cpu" and len(usage.core_percents) > 1:
                lines.append(f"{'each core':<{_LABEL_WIDTH}}{cores_text(usage.core_percents)}")
        return [*lines, _others(usage)]

    @property
    def _span_s(self) -> float:
        """Five minutes, until more than that is known."""
        first = self._history[0].at if self._history else None
        known_s = (self.usage.at - first).total_seconds() if first is not None and self.usage is not None else 0.0
        return next((span for span in _SPANS_S if known_s <= span), _SPANS_S[-1])

    def _say(self) -> None:
        self.say("#metrics-status", harmless_line(self.words_of(self.sandbox, self._status)))

    def _status(self, sandbox: Sandbox) -> str:
        age = f" · seen {short_age(clock.now() - self.usage.at)} ago" if self.usage is not None else ""
        if self._error is not None:
            return self._error.message + age
        if sandbox.state is not SandboxState.RUNNING:
            return f"{shown_name(sandbox)} is {state_text(sandbox.state)}{age}"
        if self._is_resting:
            return f"{shown_name(sandbox)} is {RESTING}{age}"
        return f"the last {'hour' if self._span_s > _SPANS_S[0] else '5 minutes'}, now at the right{age}"


def _rows(usage: Usage) -> list[tuple[str, str, Callable[[Usage], float | None], float | None, bool]]:
    """Label, figure, what is drawn, its largest value if that is fixed, and whether it is a total that grows."""
    cores = f" of {usage.cores:g}" if usage.cores else ""
    limit = f" of {short_size(usage.memory_limit_bytes)}" if usage.memory_limit_bytes else ""
    disk_limit = usage.disk_limit_bytes or ((usage.disk_bytes or 0) + (usage.disk_free_bytes or 0))
    return [
        ("cpu", _percent(usage.cpu_percent) + cores, lambda one: one.cpu_percent, 100.0, False),
        ("memory", _size(usage.memory_bytes) + limit, lambda one: one.memory_bytes, usage.memory_limit_bytes, False),
        ("disk", f"{_size(usage.disk_free_bytes)} free", lambda one: one.disk_bytes, float(disk_limit), False),
        ("received", _size(usage.received_bytes), lambda one: one.received_bytes, None, True),
        ("sent", _size(usage.sent_bytes), lambda one: one.sent_bytes, None, True),
        ("processes", _count(usage.processes), lambda one: one.processes, None, False),
    ]


def _others(usage: Usage) -> str:
    parts = []
    if usage.load:
        parts.append("load " + " ".join(f"{one:.2f}" for one in usage.load))
    if usage.swap_bytes:
        parts.append(f"swap {short_size(usage.swap_bytes)}")
    if usage.throttled_s:
        parts.append(f"held back {usage.throttled_s:.1f} s")
    if usage.oom_kills:
        parts.append(f"{usage.oom_kills} killed for want of memory")
    if usage.open_files is not None:
        parts.append(f"{usage.open_files} open files")
    return " · ".join(parts)


def _percent(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.1f} %"


def _size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else short_size(size_bytes)


def _count(count: int | None) -> str:
    return "-" if count is None else str(count)
