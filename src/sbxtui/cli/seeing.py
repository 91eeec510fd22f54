"""`events` and `doctor`."""

from __future__ import annotations

import asyncio

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.core.documents import event_json
from sbxtui.core.errors import SandboxNotFound, UsageError
from sbxtui.core.model import Event
from sbxtui.core.troubles import trouble_words
from sbxtui.services.activity import follow_events
from sbxtui.services.doctor import Patient, examine


async def events(call: Call) -> int:
    """Who did what; with `--follow`, as it happens."""
    if call.args.tail < 0:
        raise UsageError(f"--tail {call.args.tail} is not possible", hint="0 or more")
    subject = await _subject(call)
    rows = await asyncio.to_thread(call.services.registry.list, call.services.context.name)
    await call.services.reasons.note_kills(call.services.context, rows)
    log = call.services.events
    newest = await asyncio.to_thread(log.latest_seq)
    told = log.tail(max(1, call.args.tail), subject=subject)
    if subject is not None and not told and not any(row.name == subject for row in rows):
        raise SandboxNotFound(f"no sandbox `{subject}` in context `{call.services.context.name}`, and no event of one")
    _print(call, told if call.args.tail else [])
    if not call.args.follow:
        return 0
    call.out.ends_by_interrupt = True
    async for batch in follow_events(call.settings.home, log, after_seq=newest, subject=subject):
        _print(call, batch)
        for event in batch:
            if words := trouble_words(event):
                await call.services.alarms.ring(event, words)
    return 0


async def doctor(call: Call) -> int:
    """Check this machine, the context and the isolation; exits 1 when something is broken."""
    services = call.services
    patient = Patient(
        call.settings,
        registry=lambda: services.registry,
        planes=lambda: services.planes,
        context=lambda: services.context,
    )
    checks = await examine(patient)
    return show.checks(call.out, checks)


async def _subject(call: Call) -> str | None:
    if not call.args.sandbox:
        return None
    try:
        row = await call.services.sandboxes.find(call.args.sandbox)
    except SandboxNotFound:
        # A removed sandbox has events too.
        return str(call.args.sandbox)
    return row.name


def _print(call: Call, batch: list[Event]) -> None:
    for event in batch:
        if call.out.is_json:
            call.out.json(event_json(event))
        else:
            call.out.line(show.event_line(event))
