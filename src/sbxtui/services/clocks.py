"""Sandboxes' clocks: put right where they may be."""

from __future__ import annotations

from dataclasses import replace

from sbxtui.core.usage import Usage
from sbxtui.guest.client import GuestClient


async def with_right_clock(guest: GuestClient, usage: Usage) -> Usage:
    """A sample; a clock that is wrong by it has been set by then, where the sandbox has one of its own."""
    if not usage.is_clock_off:
        return usage
    return replace(usage, clock_was_set=await guest.metrics.set_clock())
