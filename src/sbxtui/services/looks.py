"""Whether a sandbox may be asked something without being kept awake by it: watching is not work.

A running job is no reason to ask for as long as it runs: the platform would take the asking for activity, and a job
that nobody keeps awake would be frozen once a dashboard is closed, and not while it is open. What is kept awake on
purpose may be asked at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

from sbxtui.core.jobs import Job
from sbxtui.core.life import KEEP_AWAKE
from sbxtui.core.model import Context, Registration
from sbxtui.core.usage import may_look
from sbxtui.services.planes import ControlPlanes
from sbxtui.store.links import Links


class Looks:
    """The looks at sandboxes of one context."""

    def __init__(self, context: Context, planes: ControlPlanes, links: Links) -> None:
        self._context = context
        self._planes = planes
        self._links = links

    async def may(self, row: Registration, jobs: Iterable[Job]) -> bool:
        """Whether asking a sandbox now leaves its life as it is; `jobs` are those known of it."""
        if row.request.idle is None:
            return True
        scale = self._planes.time_scale(self._context)
        if may_look(row.request.idle, jobs, datetime.now(UTC), scale=scale):
            return True
        link = await asyncio.to_thread(self._links.find, row.context, KEEP_AWAKE, row.id)
        return link is not None and link.is_wanted and link.is_served and link.status.get("state") == "awake"
