"""Writing down what somebody should hear of: whoever sees it first makes it an event, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sbxtui.core.errors import SandboxNotFound
from sbxtui.core.model import Registration
from sbxtui.core.troubles import TOLD, News, Silence, link_news, silence_news, usage_news
from sbxtui.settings import WatchFor
from sbxtui.store.links import Links
from sbxtui.store.registry import Registry

if TYPE_CHECKING:
    from sbxtui.core.jobs import Job
    from sbxtui.core.usage import Usage

_WATCH = "watch"


class Troubles:
    """What is wrong in the sandboxes of a home."""

    def __init__(self, registry: Registry, links: Links, watch: WatchFor) -> None:
        self._registry = registry
        self._links = links
        self._after = {
            "silent_after": timedelta(seconds=watch.silent_after_s),
            "waits_after": timedelta(seconds=watch.waits_after_s),
        }
        self._silence: dict[str, Silence] = {}

    async def note_usage(self, row: Registration, usage: Usage) -> None:
        """After a sample: a full disk, kills for want of memory, a clock that is wrong, a guest started again."""
        await asyncio.to_thread(self._note, row, lambda told: usage_news(told, usage))

    async def note_jobs(self, row: Registration, jobs: Iterable[Job]) -> None:
        """After a look at its jobs: one that has said nothing for long, or waits for input."""
        silent = self._silence.setdefault(row.id, Silence()).of(jobs, datetime.now(UTC))
        await asyncio.to_thread(self._note, row, lambda told: silence_news(told, silent, **self._after))

    async def note_links(self, context: str) -> None:
        """After any look: a sync that halted."""
        await asyncio.to_thread(self._note_links, context)

    def _note_links(self, context: str) -> None:
        for link in self._links.list("sync", context):
            try:
                row = self._registry.find(context, link.sandbox_id)
            except SandboxNotFound:
                continue
            status = link.status
            if status.get("state") == "halted" or "link" in _told(row):
                self._note(row, lambda told, status=status: link_news(told, status))  # type: ignore[misc]

    def _note(self, row: Registration, news_of: Callable[[Mapping[str, object]], News]) -> None:
        try:
            fresh = self._registry.find(row.context, row.id)
        except SandboxNotFound:
            return
        told = _told(fresh)
        news = news_of(told)
        if news.told == told:
            return
        for kind, data in news.events or (("", {}),):
            notes = [data] if kind else []
            fresh = self._registry.note(fresh, {TOLD: dict(news.told)}, kind=kind, notes=notes, actor=_WATCH)


def _told(row: Registration) -> Mapping[str, object]:
    told = row.facts.get(TOLD)
    return told if isinstance(told, dict) else {}
