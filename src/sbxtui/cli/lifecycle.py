"""`create stop start rm wait adopt rename label prune`."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable
from functools import partial

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.envfile import own_secrets, with_own
from sbxtui.cli.recovery import recover
from sbxtui.core.documents import record_json, registration_json
from sbxtui.core.errors import SandboxNotFound, StoreUnwritable, UsageError
from sbxtui.core.model import ContextKind, Registration, SandboxId
from sbxtui.core.text import counted
from sbxtui.services import localcloud
from sbxtui.services.defaults import unused_aws_settings
from sbxtui.services.launch import CreateOptions
from sbxtui.services.losses import loss_words
from sbxtui.services.sandboxes import Goal
from sbxtui.services.targets import Outcome, for_each, resolve_targets

_WOULD_GO = "would be removed"


async def create(call: Call) -> int:
    """Make a sandbox and print its name."""
    await recover(call)
    options = options_of(call.args, call)
    if words := unused_aws_settings(call.settings, call.services.context):
        call.out.note(f"note: {words}")
    if call.args.replace and call.args.name is None:
        raise UsageError("--replace needs a NAME", hint="sbx create NAME --replace")

    async def make_room() -> None:
        if call.args.replace:
            await remove_old(call)

    row = await call.services.launcher.create(
        call.args.name, options, on_progress=call.out.progress, make_room=make_room
    )
    return show_row(call, row)


def options_of(args: Namespace, call: Call) -> CreateOptions:
    """The create flags as options.

    Raises:
        UsageError: `--egress` without a connector to attach, or a flag that cannot be.
    """
    connectors = tuple(args.egress_connector)
    if args.egress and not connectors:
        if not call.services.defaults.egress_connector:
            raise UsageError(
                "--egress has no connector to attach",
                hint="set SBX_EGRESS_CONNECTOR, or name one with --egress-connector ARN",
            )
        connectors = (call.services.defaults.egress_connector,)
    return CreateOptions(
        image=args.image,
        role=args.role,
        memory_mib=args.memory,
        cpus=args.cpus,
        env=with_own(args.env),
        labels=dict(args.label),
        idle_s=args.idle,
        max_duration_s=args.max_duration,
        network=args.network,
        egress_connectors=connectors,
        ingress_connectors=tuple(args.ingress_connector),
        workdir=args.workdir,
        budget_usd=args.budget,
        secrets=own_secrets(args.secret),
    )


async def stop(call: Call) -> int:
    """Suspend."""
    return await _change_each(call, call.services.sandboxes.suspend)


async def start(call: Call) -> int:
    """Resume."""
    return await _change_each(call, call.services.sandboxes.resume)


async def rm(call: Call) -> int:
    """Terminate and forget; also a machine that has no name here, by its full id."""
    await recover(call)
    try:
        targets, failed = _targets(call)
    except SandboxNotFound:
        if len(call.args.sandboxes) == 1 and call.args.sandboxes[0].startswith("microvm-"):
            return await _rm_untracked(call, SandboxId(call.args.sandboxes[0]))
        raise
    if call.args.dry_run:
        return show.outcomes(call.out, [*await for_each(targets, _would_remove), *failed])
    if targets:
        noun = f"`{targets[0].name}`" if len(targets) == 1 else f"{len(targets)} sandboxes"
        await call.confirm(f"remove {noun} for good", consequences=[_loss(row, call) for row in targets])
    remove = partial(call.services.sandboxes.remove, is_waiting=call.args.wait)
    outcomes = await for_each(targets, remove)
    await _sweep_syncs(call)
    return show.outcomes(call.out, [*outcomes, *failed])


async def wait(call: Call) -> int:
    """Wait for a state."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    record = await call.services.sandboxes.wait(row, Goal(call.args.goal), timeout_s=call.args.timeout)
    if call.out.is_json:
        call.out.json(record_json(record) if record else {"id": row.id, "state": "TERMINATED"})
    return 0


async def adopt(call: Call) -> int:
    """Give a name to a machine that has none here."""
    row = await call.services.sandboxes.adopt(call.args.id, call.args.name)
    return show_row(call, row)


async def rename(call: Call) -> int:
    """Give a sandbox another name."""
    return show_row(call, await call.services.sandboxes.rename(call.args.old, call.args.new))


async def label(call: Call) -> int:
    """Set labels."""
    return show_row(call, await call.services.sandboxes.label(call.args.sandbox, dict(call.args.labels)))


async def prune(call: Call) -> int:
    """Forget names of sandboxes that are gone, and what the local cloud still keeps of them."""
    gone = await call.services.sandboxes.prune(is_dry_run=True)
    count = len(await _still_told(call))
    if not call.args.dry_run and (gone or count):
        what = [counted(len(gone), "name")] if gone else []
        what += [counted(count, "ended sandbox", "ended sandboxes")] if count else []
        await call.confirm(f"forget {' and '.join(what)}", consequences=gone)
        gone = await _forget_names(call) if gone else []
        await _sweep_syncs(call)
        count = await _forget_ended(call)
    if call.out.is_json:
        call.out.json(gone)
    for name in gone:
        call.out.line(name)
    if count:
        did = "would forget" if call.args.dry_run else "forgot"
        call.out.note(f"the local cloud {did} {counted(count, 'ended sandbox', 'ended sandboxes')}")
    elif not gone:
        call.out.note("nothing to prune")
    return 0


async def _forget_names(call: Call) -> list[str]:
    try:
        return await call.services.sandboxes.prune(is_dry_run=False)
    except StoreUnwritable:
        # On a full disk, what the local cloud lets go of may make the room this needs.
        await _forget_ended(call)
        return await call.services.sandboxes.prune(is_dry_run=False)


async def _still_told(call: Call) -> set[str]:
    if call.services.context.kind is not ContextKind.LOCAL:
        return set()
    return await localcloud.ended_ids(await call.services.planes.open(call.services.context))


async def _forget_ended(call: Call) -> int:
    if call.services.context.kind is not ContextKind.LOCAL:
        return 0
    return await localcloud.forget_ended(call.settings.home, await call.services.planes.open(call.services.context))


async def _change_each(call: Call, act: Callable[[Registration], Awaitable[str]]) -> int:
    await recover(call)
    targets, failed = _targets(call)
    return show.outcomes(call.out, [*await for_each(targets, act), *failed])


def _targets(call: Call) -> tuple[list[Registration], list[Outcome]]:
    return resolve_targets(call.services.registry, call.services.context, call.args.sandboxes, is_all=call.args.all)


async def remove_old(call: Call) -> None:
    """For `--replace`: remove what has the name, if the person agrees."""
    try:
        row = await asyncio.to_thread(call.services.registry.get, call.services.context.name, call.args.name)
    except SandboxNotFound:
        return
    await call.confirm(f"replace `{row.name}`", consequences=[_loss(row, call)])
    call.out.progress(f"removing the old {row.name}")
    await call.services.sandboxes.remove(row)


async def _rm_untracked(call: Call, sandbox_id: SandboxId) -> int:
    record = await call.services.sandboxes.record(sandbox_id)
    if call.args.dry_run:
        return show.outcomes(call.out, [Outcome(record.id, words=_WOULD_GO)])
    await call.confirm(f"terminate the untracked `{record.id}`", consequences=[f"state {record.state.value}"])
    plane = await call.services.planes.open_for_change(call.services.context)
    await plane.terminate(record.id)
    return show.outcomes(call.out, [Outcome(record.id, words="ending")])


def _loss(row: Registration, call: Call) -> str:
    return loss_words(row, call.settings.workdir, call.services.links)


async def _sweep_syncs(call: Call) -> None:
    """What syncs of sandboxes that are gone left here; nothing is loaded where nothing was ever synced."""
    if (call.settings.home.state_dir / "sync").is_dir():
        await call.services.syncs.sweep()


async def _would_remove(row: Registration) -> str:
    return _WOULD_GO


def show_row(call: Call, row: Registration) -> int:
    """A sandbox that was made or changed: its name, or all of it as JSON."""
    if call.out.is_json:
        call.out.json(registration_json(row))
    call.out.line(row.name)
    return 0
