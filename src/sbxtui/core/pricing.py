"""What sandboxes cost. AWS bills processors and memory for as long as a machine runs, idle or not, and snapshots.

Bursts above the baseline cannot be seen from outside: what is told to have been spent is at least that. A figure is an
estimate where the region's prices are not known, where the size of a snapshot is guessed, and always for the local
cloud, which costs nothing: what the same would cost on AWS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from sbxtui.core.errors import UsageError
from sbxtui.core.model import DEFAULT_MEMORY_MIB, Context, ContextKind, Sandbox, SandboxState
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass

# Where the figures come from.
PRICES_OF = "2026-08-07"
PRICES_SOURCE = "AWS price list for Lambda MicroVMs on ARM, us-east-1"

# us-east-1.
_USD_PER_VCPU_S = 0.0000276944
_USD_PER_GB_S = 0.0000036667
_USD_PER_GB_READ = 0.0015467699
_USD_PER_GB_WRITTEN = 0.0037977138
_USD_PER_GB_H_STORED = 0.0001111111
# Against us-east-1, from the same list: compute, snapshot read, snapshot write, storage.
_REGION_FACTORS = {
    "us-east-1": (1.0, 1.0, 1.0, 1.0),
    "us-east-2": (1.0, 1.0, 1.0, 1.0),
    "us-west-2": (1.0, 1.0, 1.0, 1.0),
    "eu-west-1": (1.053, 1.06, 1.07, 1.19),
    "ap-northeast-1": (1.164, 1.199, 1.226, 1.2),
}
# A machine's baseline is half a processor for each GB; busy, it may use four times its baseline of both.
_VCPUS_PER_GB = 0.5
_BURST = 4.0
CENT_USD = 0.01
# What measured snapshots of small programs come to.
_SNAPSHOT_GB = 0.4
_SNAPSHOT_GB_PER_GB = 0.0925


@dataclass(frozen=True, slots=True)
class Prices:
    """What one size of sandbox costs in one place, in USD."""

    running_h: float
    suspended_h: float
    suspend: float
    resume: float
    is_estimate: bool

    @property
    def worst_h(self) -> float:
        """An hour of running flat out."""
        return self.running_h * _BURST


@dataclass(frozen=True, slots=True)
class Usage:
    """How a sandbox has lived so far, in the platform's seconds."""

    running_s: float
    suspended_s: float = 0.0
    suspends: int = 0
    resumes: int = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """In USD. `per_hour` is for its state now; `at_cap` what it will have cost if it goes on so to its cap, if any."""

    per_hour: float
    so_far: float
    at_cap: float | None
    is_estimate: bool


# Lists ask for those of each of their rows.
@lru_cache(maxsize=64)
def prices_of(region: str, memory_mib: int) -> Prices:
    """The prices of a size; in a region without known ones those of the dearest, as an estimate."""
    is_known = region in _REGION_FACTORS
    compute, read, write, storage = _REGION_FACTORS.get(region, max(_REGION_FACTORS.values()))
    memory_gb = (memory_mib or DEFAULT_MEMORY_MIB) / 1024
    snapshot_gb = _SNAPSHOT_GB + _SNAPSHOT_GB_PER_GB * memory_gb
    return Prices(
        running_h=3600 * compute * memory_gb * (_VCPUS_PER_GB * _USD_PER_VCPU_S + _USD_PER_GB_S),
        suspended_h=storage * snapshot_gb * _USD_PER_GB_H_STORED,
        suspend=write * snapshot_gb * _USD_PER_GB_WRITTEN,
        resume=read * snapshot_gb * _USD_PER_GB_READ,
        is_estimate=not is_known or not memory_mib,
    )


def prices_for(context: Context, memory_mib: int) -> Prices:
    """The prices of a size in a context; for the local cloud those of us-east-1."""
    if context.kind is ContextKind.AWS and not context.endpoint_url:
        return prices_of(context.region, memory_mib)
    return _guessed(memory_mib)


@lru_cache(maxsize=64)
def _guessed(memory_mib: int) -> Prices:
    return replace(prices_of("us-east-1", memory_mib), is_estimate=True)


def cost_of(prices: Prices, usage: Usage, state: SandboxState, *, left_s: float | None) -> Cost:
    """What a sandbox has cost and will.

    Args:
        prices: Of its size and place.
        usage: How it lived so far.
        state: What it does now.
        left_s: The platform's seconds to its cap; None without one.
    """
    so_far = usage.running_s / 3600 * prices.running_h + usage.suspended_s / 3600 * prices.suspended_h
    # It was restored from its image's snapshot, too.
    so_far += usage.suspends * prices.suspend + (1 + usage.resumes) * prices.resume
    match state:
        case SandboxState.RUNNING | SandboxState.PENDING | SandboxState.SUSPENDING:
            per_hour = prices.running_h
        case SandboxState.SUSPENDED:
            per_hour = prices.suspended_h
        case _:
            per_hour = 0.0
    at_cap = None if left_s is None else so_far + per_hour * left_s / 3600
    is_estimate = prices.is_estimate or usage.suspends > 0
    return Cost(per_hour, so_far, at_cap, is_estimate)


def longest_s(prices: Prices, budget_usd: float) -> int:
    """For how long a sandbox may live so that not even flat out it can cost more than a budget."""
    return int(3600 * max(0.0, budget_usd - prices.resume) / prices.worst_h)


def baseline_usd_per_hour(region: str, memory_mib: int) -> float | None:
    """What a running sandbox of `memory_mib` costs an hour when it does nothing; None where nobody told the price."""
    if region not in _REGION_FACTORS or memory_mib <= 0:
        return None
    return prices_of(region, memory_mib).running_h


def least_usd_per_hour(context: Context, sandboxes: Sequence[Sandbox]) -> float | None:
    """What the running ones of a context cost an hour at the least; None where nothing is known, or nothing is paid."""
    if context.kind is not ContextKind.AWS:
        return None
    running = [one for one in sandboxes if one.state is SandboxState.RUNNING]
    sizes = [size for one in running if isinstance(size := one.facts.get("memory_mib"), int)]
    prices = [price for size in sizes if (price := baseline_usd_per_hour(context.region, size)) is not None]
    return sum(prices) if prices else None


def cost_text(usd: float, cost: Cost) -> str:
    """A part of a cost for a list: `~` stands before an estimate, and parts of a cent do not count."""
    return about_text(usd) if cost.is_estimate or 0 < usd < CENT_USD else usd_text(usd)


def about_text(usd: float) -> str:
    """An estimate for a list."""
    return "<$0.01" if 0 < usd < CENT_USD else f"~{usd_text(usd)}"


def usd_text(usd: float) -> str:
    """An amount for people: whole cents, or as many digits as it takes to be more than nothing."""
    if usd >= 0.1 or usd == 0:
        return f"${usd:.2f}"
    return f"${usd:.4f}" if usd >= 0.0001 else "<$0.0001"


def usd_of(text: str) -> float:
    """An amount that a person gives, more than nothing: `2.50`, `$2.50`.

    Raises:
        UsageError: It is none.
    """
    try:
        found = float(text.removeprefix("$"))
    except ValueError:
        found = 0.0
    if not 0 < found < 1_000_000:
        raise UsageError(f"`{harmless_line(text, limit=40)}` is no amount in USD, like 2.50")
    return found
