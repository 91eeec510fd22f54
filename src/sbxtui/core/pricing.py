"""What sandboxes cost at the least. AWS bills processors and memory for as long as a machine runs, idle or not.

Bursts above the baseline, snapshots and their storage come on top and cannot be seen from outside: every figure here
is a lower bound. Regions whose prices are not known have none.
"""

from __future__ import annotations

from sbxtui.core.model import Context, ContextKind, Sandbox, SandboxState

# us-east-1, from AWS's price list of 2026-08-07.
_USD_PER_VCPU_S = 0.0000276944
_USD_PER_GB_S = 0.0000036667
# Against us-east-1, from the same list.
_REGION_FACTORS = {
    "us-east-1": 1.0,
    "us-east-2": 1.0,
    "us-west-2": 1.0,
    "eu-west-1": 1.053,
    "ap-northeast-1": 1.164,
}
# A machine's baseline is half a processor for each GB.
_VCPUS_PER_GB = 0.5


def baseline_usd_per_hour(region: str, memory_mib: int) -> float | None:
    """What a running sandbox of `memory_mib` costs an hour when it does nothing; None where nobody told the price."""
    factor = _REGION_FACTORS.get(region)
    if factor is None or memory_mib <= 0:
        return None
    return 3600 * factor * memory_mib / 1024 * (_VCPUS_PER_GB * _USD_PER_VCPU_S + _USD_PER_GB_S)


def least_usd_per_hour(context: Context, sandboxes: tuple[Sandbox, ...]) -> float | None:
    """What the running ones of a context cost an hour at the least; None where nothing is known, or nothing is paid."""
    if context.kind is not ContextKind.AWS:
        return None
    running = [one for one in sandboxes if one.state is SandboxState.RUNNING]
    sizes = [size for one in running if isinstance(size := one.facts.get("memory_mib"), int)]
    prices = [price for size in sizes if (price := baseline_usd_per_hour(context.region, size)) is not None]
    return sum(prices) if prices else None
