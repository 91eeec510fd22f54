"""`snapshot create|ls|restore|rm` and `fork`."""

from __future__ import annotations

from sbxtui.cli.call import Call
from sbxtui.cli.envfile import with_own
from sbxtui.cli.fitting import Cut
from sbxtui.cli.lifecycle import remove_old, show_row
from sbxtui.cli.recovery import recover
from sbxtui.core.errors import NotFound, SbxError, UsageError
from sbxtui.core.isolation import short_isolation
from sbxtui.core.text import counted, iso, short_size
from sbxtui.services.launch import CreateOptions
from sbxtui.services.snapshots import Snapshot, has_processes

_NONE = "no snapshots: `sbx snapshot create SANDBOX` makes one"
_COLUMNS = ("NAME", "OF", "KIND", "SIZE", "IMAGE", "ISOLATION", "MADE")
_CUTS = (Cut("ISOLATION", 0), Cut("IMAGE", 0), Cut("MADE", 0), Cut("OF", 12), Cut("NAME", 12))
_FILES_ONLY = "note: files only, for it shares this machine's kernel: no processes, nothing of /tmp, no environment"


async def create(call: Call) -> int:
    """Copy a sandbox."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    call.out.progress(f"copying {row.name}")
    snapshot = await call.services.snapshots.create(row, call.args.name)
    if not snapshot.has_processes:
        call.out.note(_FILES_ONLY)
    call.out.result(_json(snapshot))
    call.out.line(snapshot.name)
    return 0


async def ls(call: Call) -> int:
    """List snapshots."""
    found = await call.services.snapshots.list()
    if call.out.is_json:
        call.out.json([_json(one) for one in found])
    names, rows = [one.name for one in found], [_row(one) for one in found]
    call.out.table(_COLUMNS, rows, cuts=_CUTS, is_wide=call.args.wide, names=names, empty=_NONE)
    return 0


async def restore(call: Call) -> int:
    """Make a sandbox from a snapshot."""
    await recover(call)
    if call.args.replace and call.args.name is None:
        raise UsageError("--replace needs a name", hint="sbx snapshot restore NAME NEW --replace")
    snapshot = await call.services.snapshots.find(call.args.snapshot)

    async def make_room() -> None:
        if call.args.replace:
            await remove_old(call)

    if not snapshot.has_processes:
        call.out.note(_FILES_ONLY)
    row = await call.services.snapshots.restore(
        snapshot, call.args.name, _options(call), on_progress=call.out.progress, make_room=make_room
    )
    return show_row(call, row)


async def rm(call: Call) -> int:
    """Delete snapshots; those that are not there are told, and hold up no other."""
    found: list[Snapshot] = []
    failed: list[SbxError] = []
    for name in call.args.snapshots:
        try:
            found.append(await call.services.snapshots.find(name))
        except NotFound as exc:
            failed.append(exc)
    if found and not call.args.dry_run:
        noun = f"`{found[0].name}`" if len(found) == 1 else counted(len(found), "snapshot")
        losses = [f"{one.name}: a copy of {one.sandbox}, {short_size(one.size_bytes)}" for one in found]
        await call.confirm(f"delete {noun} for good", consequences=losses)
        for snapshot in found:
            await call.services.snapshots.remove(snapshot)
    if call.out.is_json:
        call.out.json([one.name for one in found])
    for snapshot in found:
        call.out.line(snapshot.name)
        call.out.note(f"{snapshot.name}: {'would be deleted' if call.args.dry_run else 'deleted'}")
    for problem in failed:
        call.out.error(problem)
    return failed[0].exit_code if failed else 0


async def fork(call: Call) -> int:
    """Make a second sandbox of one."""
    await recover(call)
    row = await call.services.sandboxes.find(call.args.sandbox)
    forked = await call.services.snapshots.fork(row, call.args.name, _options(call), on_progress=call.out.progress)
    if not has_processes(row):
        call.out.note(_FILES_ONLY)
    return show_row(call, forked)


def _options(call: Call) -> CreateOptions:
    args = call.args
    return CreateOptions(
        env=with_own(args.env),
        labels=dict(args.label),
        idle_s=args.idle,
        max_duration_s=args.max_duration,
        network=args.network,
    )


def _json(snapshot: Snapshot) -> dict[str, object]:
    return {
        "name": snapshot.name,
        "kind": snapshot.kind,
        "sandbox": snapshot.sandbox or None,
        "sandbox_id": snapshot.sandbox_id,
        "image": snapshot.image,
        "isolation": snapshot.isolation,
        "created_at": iso(snapshot.created_at),
        "size_bytes": snapshot.size_bytes,
    }


def _row(snapshot: Snapshot) -> tuple[str, ...]:
    made = f"{snapshot.created_at.astimezone():%Y-%m-%d %H:%M}"
    size, isolation = short_size(snapshot.size_bytes), short_isolation(snapshot.isolation)
    return (snapshot.name, snapshot.sandbox or "-", snapshot.kind, size, snapshot.image, isolation, made)
