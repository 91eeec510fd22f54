"""`python -m sbxtui.runner.awakes`: keeps awake what shall be of a home. The runner starts it anew if it dies."""

from __future__ import annotations

import asyncio

from sbxtui.core.errors import SbxError
from sbxtui.core.life import KEEP_AWAKE
from sbxtui.core.model import Registration
from sbxtui.identity import own_identity
from sbxtui.runner.serving import Duty, serve
from sbxtui.store.links import Link
from sbxtui.wiring import Services


async def _act(services: Services, row: Registration, link: Link) -> None:
    if await asyncio.to_thread(services.links.serve, link, str(own_identity())):
        await services.keep_awake.run(row, link)


def _trouble(error: SbxError) -> dict[str, object]:
    return {"state": "unreachable", "reason": error.message}


DUTY = Duty("awakes", KEEP_AWAKE, _act, _trouble)

if __name__ == "__main__":
    raise SystemExit(serve(DUTY))
