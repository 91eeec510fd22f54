"""`python -m sbxtui.runner.syncs`: acts on every detached sync of a home. The runner starts it anew if it dies."""

from __future__ import annotations

import asyncio
import logging

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Registration
from sbxtui.identity import own_identity
from sbxtui.runner.serving import Duty, serve
from sbxtui.services.sync.syncs import KIND
from sbxtui.store.links import Link
from sbxtui.wiring import Services


async def _act(services: Services, row: Registration, link: Link) -> None:
    if await asyncio.to_thread(services.links.serve, link, str(own_identity())):
        await services.syncs.run(row, link, lambda status: None)


def _trouble(error: SbxError) -> dict[str, object]:
    return {"state": "offline", "reason": error.message}


DUTY = Duty("syncs", KIND, _act, _trouble)

if __name__ == "__main__":
    # It tells each change of every folder.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    raise SystemExit(serve(DUTY))
