"""`runner status|stop`."""

from __future__ import annotations

import asyncio

from sbxtui.cli.call import Call
from sbxtui.core.text import counted
from sbxtui.services.leftovers import is_one_shot
from sbxtui.services.runnerctl import find_runner, stop_runner

# What is left to the runner, and how it is counted.
_LINKS: dict[str, tuple[str, ...]] = {
    "sync": ("sync",),
    "forward": ("forward",),
    "keep-awake": ("sandbox kept awake", "sandboxes kept awake"),
    "budget": ("budget",),
}


def _detached(call: Call, kind: str) -> int:
    return sum(1 for link in call.services.links.list(kind) if link.is_detached and link.is_wanted)


async def status(call: Call) -> int:
    """Whether the runner runs, and what it looks after."""
    identity = find_runner(call.settings.home)
    rows = await asyncio.to_thread(call.services.registry.list)
    watched = [row.name for row in rows if is_one_shot(row)]
    links = {kind: await asyncio.to_thread(_detached, call, kind) for kind in _LINKS}
    if call.out.is_json:
        call.out.json({"pid": identity.pid if identity else None, "watched": watched, "links": links})
    elif identity is None:
        call.out.line("not running: it starts when it is needed")
    else:
        kept = [counted(len(watched), "one-shot sandbox", "one-shot sandboxes")] if watched else []
        kept += [counted(number, *_LINKS[kind]) for kind, number in links.items() if number]
        call.out.line(f"running as pid {identity.pid}; looks after {', '.join(kept) or 'nothing now'}")
    return 0


async def stop(call: Call) -> int:
    """Ask the runner to finish."""
    was_running = await stop_runner(call.settings.home)
    call.out.result({"stopped": was_running})
    call.out.note("stopped" if was_running else "it was not running")
    return 0
