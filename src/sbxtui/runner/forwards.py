"""`python -m sbxtui.runner.forwards`: serves every detached forward of a home. The runner starts it anew if it dies."""

from __future__ import annotations

import asyncio

from sbxtui.core.errors import SbxError
from sbxtui.core.model import Registration
from sbxtui.identity import own_identity
from sbxtui.runner.serving import Duty, serve
from sbxtui.services.forward.model import KIND, ForwardSpec
from sbxtui.services.forward.sharedways import SharedWays
from sbxtui.store.links import Link
from sbxtui.wiring import Services

_ways = SharedWays()
# Forwards of one sandbox share a way, which outlives the one it was made for: so do the services it uses.
_shared: dict[str, Services] = {}


async def _act(own: Services, row: Registration, link: Link) -> None:
    if link.context not in _shared:
        _shared[link.context] = Services(own.settings, actor=own.actor, context_name=link.context)
    services = _shared[link.context]
    spec = ForwardSpec.of(link)
    await services.forwards.mode(row, spec.mode)
    bound = await asyncio.to_thread(services.forwards.bind, [spec])
    if not await asyncio.to_thread(services.links.serve, link, str(own_identity())):
        bound[0].close()
        return
    await services.forwards.run(row, [link], bound, _ways)


def _trouble(error: SbxError) -> dict[str, object]:
    return {"error": error.message, "reason": error.message, "addresses": []}


DUTY = Duty("forwards", KIND, _act, _trouble)

if __name__ == "__main__":
    raise SystemExit(serve(DUTY))
