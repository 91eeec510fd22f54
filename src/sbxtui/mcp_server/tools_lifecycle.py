"""Tools for the life of sandboxes: made, listed, suspended, resumed, waited for, ended."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from sbxtui.core.documents import inspected_json, registration_json, sandbox_json
from sbxtui.core.errors import SandboxNotFound, SbxError, Unsupported
from sbxtui.core.filters import parse_filter
from sbxtui.core.model import Registration, Sandbox
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.creating import FURTHER_PARAMS, PLATFORM_PARAMS, USUAL_PARAMS, options_of
from sbxtui.mcp_server.paging import CURSOR, LIMIT, page
from sbxtui.mcp_server.params import Kind, Param, rare
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.services.losses import loss_words
from sbxtui.services.sandboxes import Goal

_WAIT_S = 45
_TARGETS = tuple(goal.value for goal in Goal)


async def create(call: Call) -> Reply:
    """Make a sandbox and wait until it answers."""
    name = call.args.text("name") or None
    # Whoever is told that it failed makes another one: nobody would look for this one.
    row = await call.services.launcher.create(name, options_of(call), on_progress=call.telling(), takes_back=True)
    return Reply({**registration_json(row), "state": "RUNNING"})


async def start(call: Call) -> Reply:
    """Resume."""
    row = await call.sandbox()
    return Reply({"name": row.name, "message": await call.services.sandboxes.resume(row)})


async def stop(call: Call) -> Reply:
    """Suspend."""
    row = await call.sandbox()
    return Reply({"name": row.name, "message": await call.services.sandboxes.suspend(row)})


async def remove(call: Call) -> Reply:
    """Terminate and forget."""
    row = await call.sandbox()
    losses = [loss_words(row, call.settings.workdir, call.services.links)]
    if call.args.flag("dry_run"):
        return Reply({"name": row.name, "removed": False, "would_lose": losses})
    await call.confirm(f"remove sandbox `{row.name}` for good", losses)
    return Reply({"name": row.name, "removed": True, "message": await call.services.sandboxes.remove(row)})


async def list_(call: Call) -> Reply:
    """All sandboxes with their live state."""
    wanted = parse_filter(call.args.text("filter"))
    now = call.services.store.now()
    spent = partial(call.services.costs.spent_usd, call.services.context)
    found = [one for one in await _live(call) if wanted.matches(one, now, spent)]
    shown = [one for one in found if call.args.flag("all") or not one.state.is_gone]
    part, more = page(call, shown)
    return Reply({"context": call.services.context.name, "sandboxes": [sandbox_json(one) for one in part], **more})


async def status(call: Call) -> Reply:
    """Of one sandbox, or of all."""
    if "name" not in call.args:
        return Reply({"sandboxes": [sandbox_json(one) for one in await _live(call) if one.is_tracked]})
    row = await call.sandbox()
    found = [one for one in await _live(call) if one.name == row.name]
    if not found:
        raise SandboxNotFound(f"`{row.name}` was removed meanwhile")
    return Reply(sandbox_json(found[0]))


async def inspect(call: Call) -> Reply:
    """All that is known of a sandbox."""
    row = await call.sandbox()
    record = await call.services.sandboxes.record(row.id)
    links = await asyncio.to_thread(call.services.links.of, row.context, row.id)
    told = [{"kind": link.kind, "spec": dict(link.spec), "running": link.is_served} for link in links]
    return Reply({**inspected_json(row, record), "links": told, "secrets": await _secrets(call, row)})


async def _secrets(call: Call, row: Registration) -> list[dict[str, object]]:
    """Names of its secrets, and where each may go; what is in them is nobody's business here."""
    try:
        return [{"name": one.key, "hosts": list(one.places)} for one in await call.services.secrets.list(row)]
    except SbxError as exc:
        if not isinstance(exc, Unsupported):
            call.warnings.append(f"its secrets are unknown: {exc.message}")
        return []


async def wait(call: Call) -> Reply:
    """Wait for a state."""
    row = await call.sandbox()
    goal = Goal(call.args.text("target", Goal.TERMINATED.value))
    timeout_s = call.args.whole("timeout", 0) or call.args.whole("timeout_ms", _WAIT_S * 1000) / 1000
    ticking = asyncio.ensure_future(_tick(call, f"waiting until {row.name} is {goal}"))
    try:
        record = await call.services.sandboxes.wait(row, goal, timeout_s=timeout_s)
    finally:
        ticking.cancel()
    return Reply({"name": row.name, "target": goal.value, "state": record.state.value if record else "TERMINATED"})


async def _live(call: Call) -> list[Sandbox]:
    inventory = await call.services.inventories.live(call.services.context)
    if inventory.error is not None:
        if not inventory.sandboxes:
            raise inventory.error
        call.warnings.append(f"states are unknown: {inventory.error.message}")
    return list(inventory.sandboxes)


async def _tick(call: Call, words: str) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(5)
            await call.progress(words)


_NEW_NAME = Param("name", help="What to call it: a-z, 0-9 and -; made up if left out")
_ONE_OR_ALL = Param("name", help="One sandbox; all if left out")

CREATE = Tool(
    "sandbox_create",
    Toolset.CORE,
    Effect.ADDS,
    "Make a sandbox and wait until it answers. It lives until sandbox_remove, also when this client is gone.",
    create,
    (
        _NEW_NAME,
        *USUAL_PARAMS,
        *PLATFORM_PARAMS,
        *rare(*FURTHER_PARAMS, Param("workdir", help="Working folder of commands (/work)")),
    ),
)

TOOLS = (
    CREATE,
    Tool("sandbox_start", Toolset.CORE, Effect.SETS, "Resume a suspended sandbox.", start, (common.NAME,)),
    Tool(
        "sandbox_list",
        Toolset.CORE,
        Effect.READS,
        "List sandboxes with their live state.",
        list_,
        (
            Param("filter", help="Like `state:run age<1h cost>.1 label=team=blue !image:py text`"),
            Param("all", Kind.FLAG, "Also those that ended"),
            LIMIT,
            CURSOR,
        ),
    ),
    Tool("sandbox_status", Toolset.CORE, Effect.READS, "State of one sandbox, or of all.", status, (_ONE_OR_ALL,)),
    Tool(
        "sandbox_inspect",
        Toolset.OBSERVE,
        Effect.READS,
        "All that is known of a sandbox: its record, network, syncs, forwards, and names of secrets.",
        inspect,
        (common.NAME,),
    ),
    Tool(
        "sandbox_stop",
        Toolset.CORE,
        Effect.SETS,
        "Suspend a sandbox: memory and disk are kept.",
        stop,
        (common.NAME,),
    ),
    Tool(
        "sandbox_remove",
        Toolset.CORE,
        Effect.DESTROYS,
        "Terminate a sandbox and forget it, with its files and whatever runs in it.",
        remove,
        (common.NAME, common.CONFIRM, common.DRY_RUN),
    ),
    Tool(
        "sandbox_wait",
        Toolset.OBSERVE,
        Effect.READS,
        "Wait until a sandbox is where it should be; ready means that it answers.",
        wait,
        (
            common.NAME,
            Param("target", help="terminated if left out", choices=_TARGETS, aliases=("until",)),
            Param("timeout", Kind.WHOLE, "Seconds (45)", least=1, most=3_600),
            Param("timeout_ms", Kind.WHOLE, "The same in milliseconds", least=1, most=3_600_000),
        ),
    ),
)
