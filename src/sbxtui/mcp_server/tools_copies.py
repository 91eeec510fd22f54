"""Tools for copies of sandboxes: snapshots, new sandboxes from them, and forks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sbxtui.core.documents import registration_json
from sbxtui.core.errors import UsageError
from sbxtui.core.model import Registration
from sbxtui.core.text import iso, short_size
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.services.launch import CreateOptions
from sbxtui.services.snapshots import Snapshot, has_processes

_FILES_ONLY = "only files were copied: no processes, nothing of /tmp, no environment"


async def fork(call: Call) -> Reply:
    """A second sandbox that goes on from where one is now."""
    row = await call.sandbox()
    made = await call.services.snapshots.fork(row, _new(call), _options(call), on_progress=call.telling())
    return _made(call, made, has_memory=has_processes(row), forked_from=row.name)


async def snapshot(call: Call) -> Reply:
    """Keep a copy of a sandbox, list the copies, make a sandbox of one, delete one."""
    snapshots = call.services.snapshots
    match call.args.text("action"):
        case "list":
            return Reply({"snapshots": [_told(one) for one in await snapshots.list()]})
        case "create":
            _required(call, "name", "the sandbox to copy")
            row = await call.sandbox()
            kept = await snapshots.create(row, call.args.text("snapshot") or None)
            if not kept.has_processes:
                call.warnings.append(_FILES_ONLY)
            return Reply(_told(kept))
    kept = await snapshots.find(_required(call, "snapshot", "`action` list tells which there are"))
    if call.args.text("action") == "restore":
        made = await snapshots.restore(kept, _new(call), _options(call), on_progress=call.telling())
        return _made(call, made, has_memory=kept.has_processes, snapshot=kept.name)
    losses = [f"a copy of {kept.sandbox}, {short_size(kept.size_bytes)}"]
    await call.confirm(f"delete the snapshot `{kept.name}` for good", losses)
    await snapshots.remove(kept)
    return Reply({"snapshot": kept.name, "removed": True})


def _made(call: Call, row: Registration, *, has_memory: bool, **of: str) -> Reply:
    if not has_memory:
        call.warnings.append(_FILES_ONLY)
    return Reply({**registration_json(row), **of, "state": "RUNNING"})


def _options(call: Call) -> CreateOptions:
    args = call.args
    return CreateOptions(env=args.variables("env"), labels=args.variables("labels"), network=args.text("network"))


def _new(call: Call) -> str | None:
    return call.args.text("new_name") or None


def _required(call: Call, name: str, hint: str) -> str:
    if not (found := call.args.text(name)):
        raise UsageError(f"`{name}` is missing", hint=hint)
    return found


def _told(one: Snapshot) -> Mapping[str, object]:
    return {
        "snapshot": one.name,
        "kind": one.kind,
        "sandbox": one.sandbox,
        "image": one.image,
        "created_at": iso(one.created_at),
        "size_bytes": one.size_bytes,
    }


_NEW = (
    Param("new_name", help="What to call the new one; made up if left out"),
    Param("env", Kind.VARIABLES, "Its environment, over what it had"),
    Param("labels", Kind.VARIABLES, "Its labels"),
    Param("network", help="As of sandbox_create; else as it was"),
)

TOOLS = (
    Tool(
        "sandbox_fork",
        Toolset.COPIES,
        Effect.ADDS,
        "Make a second sandbox that goes on from where one is now; the first goes on, too.",
        fork,
        (common.NAME, *_NEW),
        reaches_out=True,
    ),
    Tool(
        "sandbox_snapshot",
        Toolset.COPIES,
        Effect.DESTROYS,
        "Keep a copy of a sandbox (create), list copies, make a sandbox from one (restore), or delete one (remove).",
        snapshot,
        (
            Param("action", help="What to do", is_required=True, choices=("create", "list", "restore", "remove")),
            replace(common.NAME, help="create: the sandbox", is_required=False),
            Param("snapshot", help="Name of the copy; create makes one up"),
            *_NEW,
            common.CONFIRM,
        ),
        looks=("list",),
    ),
)
