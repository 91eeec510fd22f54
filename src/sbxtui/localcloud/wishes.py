"""How a sandbox wishes to be isolated, said in the payload it is launched with, and which runtime that gives it.

The API has no field for it. A payload that says nothing of it, as anybody's else, gets what the local cloud gives all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from sbxtui.core.errors import RuntimeUnavailable, UsageError
from sbxtui.core.isolation import check_wish
from sbxtui.localcloud import faults
from sbxtui.localcloud.runtimes.choose import choose_runtime
from sbxtui.localcloud.world import World


async def runtime_for(params: Mapping[str, Any], world: World) -> str:
    """The id of the runtime a launch gets: what it wishes, exactly or at least, and never less.

    Raises:
        Fault: 400, it names no isolation, or one that is not to be had here.
    """
    wish = _wish_in(params.get("runHookPayload", ""))
    if not wish:
        return world.runtime
    try:
        if check_wish(wish)[0] == "firecracker":
            raise RuntimeUnavailable(f"isolation `{wish}` is not to be had on this machine: it is AWS's")
        choice = await asyncio.to_thread(choose_runtime, wish, world.trees_dir / ".images")
    except UsageError as exc:
        raise faults.validation(exc.message) from exc
    except RuntimeUnavailable as exc:
        raise faults.isolation_unavailable(exc.message) from exc
    return choice.runtime.id


def _wish_in(payload: str) -> str:
    try:
        return str(json.loads(payload).get("isolation", ""))
    except (ValueError, AttributeError, RecursionError):
        return ""
