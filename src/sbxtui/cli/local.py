"""`local setup|status|env|stop|reset`."""

from __future__ import annotations

from pathlib import Path

from sbxtui.cli.call import Call
from sbxtui.control.local import find_local_cloud
from sbxtui.core.model import Context
from sbxtui.core.text import counted
from sbxtui.services import localcloud


async def status(call: Call) -> int:
    """What the local cloud is; starts nothing."""
    cloud = find_local_cloud(call.settings.home)
    count = 0
    if cloud is not None:
        plane = await call.services.planes.open(_context(call))
        count = sum(1 for one in await plane.list() if not one.state.is_gone)
    facts = {
        "endpoint_url": cloud.endpoint_url if cloud else None,
        "region": cloud.region if cloud else None,
        "account_id": cloud.account_id if cloud else None,
        "pid": cloud.pid if cloud else None,
        "runtime": cloud.runtime if cloud else None,
        "isolation": cloud.isolation if cloud else None,
        "mode": cloud.mode if cloud else None,
        "limits": cloud.mode_words if cloud else None,
        "sandboxes": count,
    }
    if call.out.is_json:
        call.out.json(facts)
    elif cloud is None:
        call.out.line("not running: it starts when it is needed")
    for key, value in facts.items():
        if cloud is not None:
            call.out.line(f"{key:<13} {value}")
    return 0


async def setup(call: Call) -> int:
    """Fetch an isolation runtime, or take the one that is named, and try it."""
    runsc = Path(call.args.runsc) if call.args.runsc else None
    found = await localcloud.set_up(call.settings.home, runsc, call.out.note)
    call.out.result(found)
    age = f", {found['age']}" if found.get("age") else ""
    call.out.note(f"gVisor {found.get('version', '')}{age}: new sandboxes run on it")
    return 0


async def env(call: Call) -> int:
    """Variables for other AWS clients; starts the local cloud."""
    cloud = await call.services.planes.local_cloud()
    variables = localcloud.client_environment(call.settings.home, cloud)
    if call.out.is_json:
        call.out.json(variables)
    for line in localcloud.shell_lines(variables, call.args.shell):
        call.out.line(line)
    return 0


async def stop(call: Call) -> int:
    """Stop serving; sandboxes live on."""
    was_running = await localcloud.stop(call.settings.home)
    call.out.result({"stopped": was_running})
    call.out.note("stopped; sandboxes live on" if was_running else "it was not running")
    return 0


async def reset(call: Call) -> int:
    """End all local sandboxes and delete what the local cloud kept."""
    context = _context(call)
    plane = await call.services.planes.open(context)
    named: dict[str, str] = {row.id: row.name for row in call.services.registry.list(context.name)}
    names = list(named.values())
    alive = sum(1 for one in await plane.list() if not one.state.is_gone)
    if call.args.dry_run:
        call.out.result({"sandboxes": alive, "names": names})
        call.out.line(f"would end {counted(alive, 'sandbox', 'sandboxes')} and forget {counted(len(names), 'name')}")
        return 0
    ends = f"ends {counted(alive, 'sandbox', 'sandboxes')} with all their files"
    await call.confirm("reset the local cloud", consequences=[ends, *names])
    ended = await localcloud.reset(call.settings.home, context, plane, call.services.registry, call.services.actor)
    if call.out.is_json:
        call.out.json([{"id": sandbox_id, "name": named.get(sandbox_id)} for sandbox_id in ended])
    for sandbox_id in ended:
        call.out.line(named.get(sandbox_id, sandbox_id))
    done = f"{counted(len(ended), 'sandbox', 'sandboxes')} ended, {counted(len(names), 'name')} forgotten"
    call.out.note(f"reset: {done}, and what the local cloud kept is deleted")
    return 0


def _context(call: Call) -> Context:
    return call.services.contexts.get("local")
