"""Tools for what is kept true of a sandbox from this machine: folders in sync, ports forwarded, kept awake."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import UTC, datetime

from sbxtui.core.errors import UsageError
from sbxtui.core.ports import PortPair
from sbxtui.core.text import iso
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.services.awake import UNTIL_JOB, awake_spec
from sbxtui.services.forward.model import facts_of, specs_of
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.spec import SyncSpec
from sbxtui.store.links import Wanted


async def sync(call: Call) -> Reply:
    """Keep a folder of this machine and a sandbox's work folder equal, or see to that."""
    action = call.args.text("action")
    row = await call.sandbox()
    syncs = call.services.syncs
    match action:
        case "start":
            mode = Mode(call.args.text("mode", Mode.PUSH.value))
            with call.host_paths.opened(call.args.text("host_path")) as place:
                if not place.is_folder:
                    raise UsageError(f"{place.shown} is no folder")
                if mode is Mode.TWO_WAY:
                    losses = [f"what `{row.name}` changes or deletes is changed and deleted in {place.shown}"]
                    await call.confirm(f"let `{row.name}` change files of {place.shown}", losses)
                await syncs.detach(row, SyncSpec(place.shown, call.args.text("to"), mode))
        case "flush":
            return Reply({"name": row.name, "pushed": await syncs.flush(row)})
        case "pause" | "resume":
            await syncs.want(row, Wanted.PAUSED if action == "pause" else Wanted.RUNNING)
            await syncs.obeyed(row)
        case "stop":
            return Reply({"name": row.name, "stopped": True, "kept_in": list(await syncs.end(row))})
        case "conflicts":
            return Reply({"name": row.name, "conflicts": [one.as_json() for one in await syncs.conflicts(row)]})
    link = await asyncio.to_thread(syncs.find, row)
    return Reply({"name": row.name, **link.spec, "wanted": link.wanted.value, "running": link.is_served, **link.status})


async def forward(call: Call) -> Reply:
    """Open ports of a sandbox on this machine, list them, close them."""
    row = await call.sandbox()
    forwards, port = call.services.forwards, call.args.whole("port")
    match call.args.text("action"):
        case "open":
            if not port:
                raise UsageError("`port` is missing", hint="the sandbox's port")
            mode = await forwards.mode(row)
            settings = call.settings
            specs = specs_of(
                [PortPair(call.args.whole("local_port"), port)],
                bind="",
                hosts=(),
                origins=(),
                reserved={settings.hook_port: "the platform's hook port", settings.agent_port: "its guest's own"},
            )
            specs = [replace(spec, mode=mode) for spec in specs]
            bound = await asyncio.to_thread(forwards.bind, specs, any_port="local_port" not in call.args)
            for one in bound:
                one.close()
            links = await forwards.detach(row, [one.spec for one in bound])
            return Reply({"name": row.name, "forwards": [facts_of(link) for link in links]})
        case "close":
            local = call.args.whole("local_port")
            stopped = await forwards.stop(row, [local] if local else ())
            return Reply({"name": row.name, "closed": [facts_of(link)["local_port"] for link in stopped]})
    links = [link for link in await asyncio.to_thread(forwards.all, row.context) if link.sandbox_id == row.id]
    return Reply({"name": row.name, "forwards": [facts_of(link) for link in links]})


async def ports(call: Call) -> Reply:
    """What listens inside."""
    row = await call.sandbox()
    found = await call.services.ports.look(row)
    told = [{**asdict(one), "since": iso(one.since) if one.since else None} for one in found]
    return Reply({"name": row.name, "ports": told, "untrusted": True})


async def keep_awake(call: Call) -> Reply:
    """Keep a sandbox from being suspended for want of traffic, or let it be."""
    row, until = await call.sandbox(), call.args.text("until")
    if until == "stop":
        await call.services.keep_awake.stop(row)
        return Reply({"name": row.name, "kept_awake": False})
    link = await call.services.keep_awake.start(row, awake_spec(until or UNTIL_JOB, datetime.now(UTC)))
    return Reply({"name": row.name, "kept_awake": True, **link.spec})


_SYNC_ACTIONS = ("start", "status", "flush", "pause", "resume", "conflicts", "stop")

TOOLS = (
    Tool(
        "sandbox_sync",
        Toolset.LINKS,
        Effect.DESTROYS,
        "Keep a folder of this machine and a sandbox's work folder equal: start it, ask how it is, have all of it "
        "there (flush), pause, resume, list conflicts, stop. It goes on without this client.",
        sync,
        (
            common.NAME,
            Param("action", help="What to do", is_required=True, choices=_SYNC_ACTIONS),
            Param("host_path", help="start: folder on this machine, below an allowed one"),
            Param("to", help="start: folder in the sandbox (its work folder)"),
            Param("mode", help="start: which way changes go (push)", choices=tuple(mode.value for mode in Mode)),
            common.CONFIRM,
        ),
        looks=("status", "conflicts"),
    ),
    Tool(
        "sandbox_forward",
        Toolset.LINKS,
        Effect.SETS,
        "Open a port of a sandbox on this machine's loopback, list those that are open, or close them.",
        forward,
        (
            common.NAME,
            Param("action", help="What to do", is_required=True, choices=("open", "list", "close")),
            Param("port", Kind.WHOLE, "The sandbox's port", least=1, most=65_535, aliases=("remote_port",)),
            Param("local_port", Kind.WHOLE, "This machine's port (any free one)", least=1, most=65_535),
        ),
        looks=("list",),
    ),
    Tool(
        "sandbox_ports",
        Toolset.LINKS,
        Effect.READS,
        "Which ports are listened on inside a sandbox, and by what.",
        ports,
        (common.NAME,),
    ),
    Tool(
        "sandbox_keep_awake",
        Toolset.LINKS,
        Effect.SETS,
        "Keep a sandbox from being suspended while a job runs in it; it goes on without this client.",
        keep_awake,
        (common.NAME, Param("until", help="job (the default), 2h, a time; `stop` lets it fall asleep")),
    ),
)
