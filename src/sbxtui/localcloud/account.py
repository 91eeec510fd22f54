"""The account that the local cloud is: its number and region, and how much an account of some size may have and do.

Without a size nothing is counted: what a person does on their own machine is limited by the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sbxtui.localcloud import faults

REGION = "local-1"
ACCOUNT_ID = "000000000000"
NO_SIZE = "none"

IMAGES_CODE, VERSIONS_CODE, BUILDS_CODE = "L-942E56BE", "L-F8BECE9C", "L-72E0D058"


@dataclass(frozen=True, slots=True)
class Rate:
    """Calls a second, and how many at once after a pause, with the codes of the two quotas."""

    per_s: float
    burst: int
    rate_code: str = ""
    burst_code: str = ""


# The platform's, by operation. Listing has no quota that is told, and is refused in bursts all the same.
_RATES = {
    "RunMicrovm": Rate(5, 5, "L-535CA9B6", "L-91B95582"),
    "SuspendMicrovm": Rate(2, 2, "L-90045317", "L-139F9A48"),
    "ResumeMicrovm": Rate(5, 5, "L-118C44B3", "L-25EEC0A4"),
    "TerminateMicrovm": Rate(10, 10, "L-74787B8A", "L-2CCA0501"),
    "CreateMicrovmAuthToken": Rate(50, 50, "L-7712260B", "L-D65D9F16"),
    "CreateMicrovmShellAuthToken": Rate(5, 5, "L-B78D2ECC", "L-9A5E43A5"),
    "GetMicrovm": Rate(100, 100, "L-CE98C9E3", "L-C9C2110E"),
    "ListMicrovms": Rate(10, 20),
}


@dataclass(frozen=True, slots=True)
class AccountSize:
    """What an account may have at once, and its rates. Memory is counted at four times a sandbox's baseline."""

    memory_mib: int
    images: int = 100
    versions: int = 50
    builds: int = 10
    rates: Mapping[str, Rate] = field(default_factory=lambda: _RATES)


MEMORY_FACTOR = 4
SIZES: Mapping[str, AccountSize] = {
    "standard": AccountSize(1024 * 1024),
    "small-region": AccountSize(400 * 1024, builds=5),
    "fresh": AccountSize(8 * 1024, rates={**_RATES, "RunMicrovm": Rate(1, 1, "L-535CA9B6", "L-91B95582")}),
}


class Account:
    """One account of a size, or of none. `clock` gives seconds."""

    def __init__(self, size: AccountSize | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = size
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take_call(self, operation: str) -> None:
        """Count a call.

        Raises:
            Fault: 429, there were too many.
        """
        rate = self.size.rates.get(operation) if self.size else None
        if rate is None:
            return
        now = self._clock()
        left, at = self._left.get(operation, (float(rate.burst), now))
        left = min(float(rate.burst), left + (now - at) * rate.per_s)
        if left < 1:
            self._left[operation] = (left, now)
            raise faults.throttled(rate.rate_code)
        self._left[operation] = (left - 1, now)

    def check_memory(self, promised_mib: int, more_mib: int) -> None:
        """Refuse a sandbox that would make the account too full.

        Raises:
            Fault: 402.
        """
        if self.size and (promised_mib + more_mib) * MEMORY_FACTOR > self.size.memory_mib:
            raise faults.memory_quota_exceeded()

    def check_count(self, count: int, most: str, code: str) -> None:
        """Refuse one more of what there are `count` of; `most` names the limit: `images`, `versions` or `builds`.

        Raises:
            Fault: 402.
        """
        if self.size and count >= (limit := int(getattr(self.size, most))):
            raise faults.quota_exceeded(f"The limit of {limit} {most} has been reached for this account.", code)
