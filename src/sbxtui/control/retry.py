"""When a failed call is worth another try, and how long to wait before it.

Every call we make may be repeated: launches carry a client token, the others do the same thing twice or nothing. Our
own loop instead of botocore's, because it waits in asyncio (a cancelled wait ends at once) and heeds `Retry-After`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from sbxtui.core.errors import ControlUnavailable, SbxError, Throttled
from sbxtui.core.values import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently. Delays double from `first_delay_s`, each shortened by a random part."""

    max_attempts: int = 4
    first_delay_s: float = 0.25
    max_delay_s: float = 8.0


# `details` key of an error: seconds the server asked us to wait.
RETRY_AFTER = "retry_after_s"
# `details` key of an error that would only come again.
FINAL = "is_final"


def delay_before_retry(
    error: SbxError, attempts: int, policy: RetryPolicy, *, choose: Callable[[], float] = random.random
) -> float | None:
    """Seconds to wait before trying again, or None to give up.

    Args:
        error: Our error of the last attempt.
        attempts: How many were made.
        policy: The limits.
        choose: A random number in [0, 1), so that many processes do not come back together.
    """
    if attempts >= policy.max_attempts or not _may_pass(error):
        return None
    longest: float = min(policy.max_delay_s, policy.first_delay_s * 2 ** (attempts - 1))
    delay_s = longest * (0.5 + choose() / 2)
    asked_s = error.details.get(RETRY_AFTER)
    if isinstance(asked_s, int | float):
        # A server that asks for more than we would ever wait gets the caller's decision instead.
        return None if asked_s > policy.max_delay_s else max(delay_s, float(asked_s))
    return delay_s


def _may_pass(error: SbxError) -> bool:
    # A spent quota (402) does not come back by waiting a second; a throttle does.
    return isinstance(error, Throttled | ControlUnavailable) and not error.details.get(FINAL)
