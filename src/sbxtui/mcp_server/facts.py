"""What a server tells of itself and of what it works with, for its tools and its resources."""

from __future__ import annotations

from sbxtui._version import __version__
from sbxtui.services.doctor import Check, Patient, examine
from sbxtui.wiring import Services


async def checks(services: Services) -> list[Check]:
    """Every check of this machine and the context."""
    return await examine(
        Patient(
            services.settings,
            registry=lambda: services.registry,
            planes=lambda: services.planes,
            context=lambda: services.context,
        )
    )


async def runtime_facts(services: Services) -> dict[str, object]:
    """What works, what does not, and what to do about it."""
    found = await checks(services)
    return {
        "version": __version__,
        "context": services.context.name,
        "works": not any(one.status == "fail" for one in found),
        "checks": [
            {"name": one.name, "status": one.status, "words": one.words, **({"hint": one.hint} if one.hint else {})}
            for one in found
        ],
    }
