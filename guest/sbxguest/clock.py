"""`PUT /v2/clock`: setting the sandbox's clock, where it has one of its own.

On the platform the clock jumps with the machine; should it be wrong after all, certificates and tokens fail. A kernel
that is shared has the clock of the host and of everybody else on it: that is never touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sbxguest.app import Request, Response, Route, WireError, json_response
from sbxguest.state import GuestSettings
from sbxguest.stats import clock_watch

# What any computer's clock says is before this, whatever the caller says: 2^33 seconds, the year 2242.
_LATEST_S = 2.0**33


def set_clock(settings: GuestSettings, now_s: float, set_time: Callable[[int, float], None]) -> bool:
    """Set the clock to an instant; False where it is not the sandbox's own, or may not be set."""
    if not settings.has_own_clock:
        return False
    try:
        set_time(time.CLOCK_REALTIME, now_s)
    except OSError:
        return False
    # Our own doing is no jump.
    clock_watch.look(is_noted=False)
    return True


async def put(request: Request) -> Response:
    """`PUT /v2/clock` {now_s}: whether it was set."""
    now_s = (await request.json()).get("now_s")
    if isinstance(now_s, bool) or not isinstance(now_s, int | float) or not 0 < now_s < _LATEST_S:
        raise WireError(400, "bad_request", "`now_s` must be the seconds since 1970")
    was_set = set_clock(request.guest.state.settings, float(now_s), time.clock_settime)
    return json_response({"was_set": was_set, "now_s": time.time()})


ROUTES = (Route("PUT", "/v2/clock", put),)
