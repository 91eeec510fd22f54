"""`events` and `doctor`."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.output import terminal_columns
from sbxtui.core.documents import event_json
from sbxtui.core.errors import SandboxNotFound
from sbxtui.core.model import Event, Registration
from sbxtui.core.troubles import trouble_words
from sbxtui.services.activity import follow_events
from sbxtui.services.doctor import Patient, examine


async def events(call: Call) -> int:
    """Who did what; with `--follow`, as it happens."""
    machine = await _machine(call)
    context, log = call.services.context.name, call.services.events
    rows = await asyncio.to_thread(call.services.registry.list, context)
    await call.services.reasons.note_kills(call.services.context, rows)
    newest = await asyncio.to_thread(log.latest_seq)
    _print(call, (await _told(call, machine))[-call.args.tail :] if call.args.tail else [])
    if not call.args.follow:
        return 0
    call.out.ends_by_interrupt = True
    watched = _Watched(context, machine.id if machine else "", machine.name if machine else call.args.sandbox)
    alarms = call.services.alarms
    async with alarms.looking():
        async for batch in follow_events(call.settings.home, log, after_seq=newest):
            about = [event for event in batch if watched.takes(event)]
            _print(call, about)
            for event in about:
                if words := trouble_words(event):
                    await alarms.ring(event, words)
    return 0


@dataclass(slots=True)
class _Watched:
    """What is followed: everything, a name nobody has, or a machine, whatever it is renamed to."""

    context: str
    sandbox_id: str
    name: str

    def takes(self, event: Event) -> bool:
        if not self.name:
            return True
        if event.kind == "sandbox.renamed" and self.sandbox_id and event.data.get("id") == self.sandbox_id:
            self.name = event.subject
        return event.context == self.context and event.subject == self.name


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


async def _machine(call: Call) -> Registration | None:
    if not call.args.sandbox:
        return None
    with contextlib.suppress(SandboxNotFound):
        return await call.services.sandboxes.find(call.args.sandbox)
    return None


async def _told(call: Call, machine: Registration | None) -> list[Event]:
    """The newest events of what was asked for.

    Raises:
        SandboxNotFound: It is unknown, to the events too.
    """
    log, context, limit = call.services.events, call.services.context.name, max(1, call.args.tail)
    asked = call.args.sandbox
    if not asked:
        return await asyncio.to_thread(log.tail, limit)
    if machine is not None:
        return await asyncio.to_thread(log.history, context, machine.name, limit)
    # A removed sandbox has events too, by its id or by any name it ever had.
    told = await asyncio.to_thread(log.history_of_id, context, asked, limit)
    told = told or await asyncio.to_thread(log.tail, limit, context=context, subject=asked)
    if not told:
        raise SandboxNotFound(f"no sandbox `{asked}` in context `{context}`, and no event of one")
    return told


def _print(call: Call, batch: list[Event]) -> None:
    for event in batch:
        if call.out.is_json:
            call.out.json(event_json(event))
        else:
            call.out.line(show.event_line(event, 0 if call.args.wide else terminal_columns()))
