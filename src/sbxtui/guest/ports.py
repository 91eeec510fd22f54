"""`/v2/ports` on the host: what listens in a sandbox, as its guest tells it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from sbxtui.core.errors import Unsupported
from sbxtui.guest.faults import translated
from sbxtui.guest.filewire import as_object, lines
from sbxtui.guest.http1 import Patience
from sbxtui.guest.transport import Transport

_DOING = "asking what listens"
_PATH = "/v2/ports"
# Nothing comes while nothing changes: no time is too long.
_PATIENCE = Patience(answer_s=float(10**9))

Told = list[dict[str, Any]]


async def ports_now(transport: Transport) -> Told:
    """What listens now; raises as `Transport.call`."""
    return _ports(await transport.call("GET", _PATH, doing=_DOING))


async def ports_followed(transport: Transport) -> AsyncGenerator[Told, None]:
    """What listens, now and at each change, until the connection ends.

    Raises:
        Unsupported: The image's guest tells it only when it is asked. GuestUnreachable: The connection broke.
    """
    with translated(_DOING):
        async with transport.stream("GET", _PATH, query={"follow": 1}, patience=_PATIENCE) as answer:
            await transport.check(answer, _DOING)
            if "ndjson" not in answer.headers.get("content-type", ""):
                raise Unsupported("this image's guest tells what listens only when it is asked")
            async for line in lines(answer.pieces()):
                yield _ports(as_object(line))


def _ports(answer: Mapping[str, Any]) -> Told:
    told = answer.get("ports")
    return [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
