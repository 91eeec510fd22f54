"""`forward` and `ports`: what listens in a sandbox, reached on this machine."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import UTC, datetime

from sbxtui.cli.call import Call, stopped_words
from sbxtui.cli.fitting import Cut
from sbxtui.core.errors import UsageError
from sbxtui.core.model import Registration
from sbxtui.core.ports import parse_mapping
from sbxtui.core.text import harmless_line, short_age, short_size
from sbxtui.services.forward.listeners import Bound
from sbxtui.services.forward.model import (
    ForwardSpec,
    ForwardStatus,
    Mode,
    facts_of,
    parse_mode,
    specs_of,
)
from sbxtui.services.forward.sharedways import SharedWays
from sbxtui.services.ports import OpenPort
from sbxtui.services.sync.beside import beside

COLUMNS = ("SANDBOX", "LOCAL", "REMOTE", "STATE", "OPEN", "SENT / RECEIVED", "LAST ERROR")
CUTS = (
    *(Cut("LAST ERROR", 24), Cut("SENT / RECEIVED", 0), Cut("OPEN", 0), Cut("SANDBOX", 16), Cut("LAST ERROR", 8)),
    *(Cut("LAST ERROR", 0), Cut("STATE", 8), Cut("SANDBOX", 8)),
)
PORT_COLUMNS = ("PORT", "ADDRESS", "PROCESS", "PID", "SINCE")
PORT_CUTS = (Cut("ADDRESS", 12), Cut("PROCESS", 12), Cut("SINCE", 0), Cut("PID", 0), Cut("PROCESS", 6))
_NO_FORWARD = "no forwards: `sbx forward SANDBOX PORT` opens one"


async def start(call: Call) -> int:
    """Forward ports until Ctrl-C, or leave that to the runner."""
    specs = _asked(call)
    forwards, out = call.services.forwards, call.out
    row = await call.services.sandboxes.find(call.args.sandbox)
    mode = await forwards.mode(row, parse_mode(call.args.mode))
    if mode is Mode.PROXY and not call.args.mode:
        out.note(f"the image of `{row.name}` has no guest for a tunnel: HTTP and WebSocket pass, through its endpoint")
    specs = [replace(spec, mode=mode) for spec in specs]
    # Bound here also for `--detach`: a port that is taken is told now, by its holder's name.
    bound = await asyncio.to_thread(forwards.bind, specs, any_port=call.args.any_port)
    specs = [one.spec for one in bound]
    if call.args.detach:
        for one in bound:
            one.close()
        links = await forwards.detach(row, specs)
        _tell(call, row.name, specs, [facts_of(link) for link in links])
        out.note(f"`sbx forward ls` tells how it is, `sbx forward stop {row.name}` ends it")
        return 0
    await _run(call, row, bound)
    return 0


async def _run(call: Call, row: Registration, bound: list[Bound]) -> None:
    forwards, out = call.services.forwards, call.out
    links = []
    try:
        for one in bound:
            links.append(await asyncio.to_thread(forwards.take, row, one.spec))
    except BaseException:
        for one in bound:
            one.close()
        raise
    specs = [one.spec for one in bound]
    _tell(call, row.name, specs, [{"event": "listening", **facts_of(link)} for link in links], is_stream=True)
    out.note("Ctrl-C ends")
    out.ends_by_interrupt = True
    teller = _Teller(call, row.name)
    async with beside(call.services.ports.watch(row)):
        await forwards.run(row, links, bound, SharedWays(), teller.trouble, teller.status, teller.port)
    out.note(await stopped_words(call, row))


def _asked(call: Call) -> list[ForwardSpec]:
    args = call.args
    pairs = [parse_mapping(text) for text in args.ports]
    if args.remote_port:
        pairs.append(parse_mapping(f"{args.local_port or args.remote_port}:{args.remote_port}"))
    elif args.local_port:
        raise UsageError("--local-port needs --remote-port", hint="or write LOCAL:REMOTE")
    if args.no_verify_tls and args.detach:
        raise UsageError("--no-verify-tls holds for this process only", hint="SBX_VERIFY_TLS=0 is the runner's, too")
    if args.poll_interval:
        call.out.note("note: --poll-interval does nothing here: nothing is polled")
    specs = specs_of(
        pairs,
        bind=args.bind,
        hosts=args.host,
        origins=args.allow_origin,
        reserved=call.services.reserved_ports,
    )
    if args.bind and not args.bind.startswith("127."):
        call.out.note(f"warning: whoever can reach {args.bind} can reach what is forwarded; nothing asks who it is")
    return specs


def _tell(
    call: Call, name: str, specs: list[ForwardSpec], facts: list[dict[str, object]], *, is_stream: bool = False
) -> None:
    if call.out.is_json:
        for document in facts if is_stream else [facts]:
            call.out.json(document)
        return
    for spec in specs:
        call.out.line(f"{spec.url(name)} → {name}:{spec.remote_port}")


async def ls(call: Call) -> int:
    """List forwarded ports."""
    links = await asyncio.to_thread(call.services.forwards.all, call.services.context.name)
    facts = [facts_of(link) for link in links]
    if call.out.is_json:
        call.out.json(facts)
        return 0
    rows = [
        (
            str(one["sandbox"]),
            str(one["local_port"]),
            str(one["remote_port"]),
            str(one["state"]),
            str(one.get("open_connections", 0)),
            f"{short_size(_size(one, 'sent_bytes'))} / {short_size(_size(one, 'received_bytes'))}",
            harmless_line(str(one.get("reason") or one.get("last_error") or "")),
        )
        for one in facts
    ]
    names = [f"{one['sandbox']}:{one['local_port']}" for one in facts]
    call.out.table(COLUMNS, rows, cuts=CUTS, is_wide=call.args.wide, names=names, empty=_NO_FORWARD)
    return 0


def _size(facts: dict[str, object], key: str) -> int:
    value = facts.get(key)
    return value if isinstance(value, int) else 0


async def stop(call: Call) -> int:
    """End forwards of a sandbox."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    links = await call.services.forwards.stop(row, call.args.ports)
    ports = [ForwardSpec.of(link).local_port for link in links]
    call.out.result({"sandbox": row.name, "stopped": ports})
    call.out.note(f"stopped: {', '.join(map(str, ports))}")
    return 0


class _Teller:
    """Tells a person, or a script, what becomes of a forward: each new state of the way, each kind of trouble once."""

    def __init__(self, call: Call, name: str) -> None:
        self._out = call.out
        self._name = name
        self._told = ""

    def port(self, port: OpenPort) -> None:
        """Something new listens in the sandbox."""
        if self._out.is_json:
            self._out.json({"event": "port", **asdict(port)})
        else:
            self._out.note(f"port {port.port} is new inside ({port.process}): `sbx forward {self._name} {port.port}`")

    def status(self, status: ForwardStatus) -> None:
        """The way to the sandbox has changed."""
        if self._out.is_json:
            self._out.json({"event": "state", "state": status.state, "reason": status.reason})
        elif status.state == "up":
            self._told = ""
        elif status.reason or status.state == "suspended":
            words = f"{status.state}{f': {status.reason}' if status.reason else ''}"
            # Each client that a suspended sandbox cannot answer asks again.
            if words != self._told:
                self._told = words
                self._out.note(words)

    def trouble(self, words: str) -> None:
        """A connection came to nothing."""
        if self._out.is_json:
            self._out.json({"event": "trouble", "message": words})
        else:
            self._out.note(words)


async def ports(call: Call) -> int:
    """List what listens inside a sandbox."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    found = await call.services.ports.look(row)
    if call.out.is_json:
        call.out.json([asdict(one) for one in found])
        return 0
    now = datetime.now(UTC)
    rows = [
        (
            str(one.port),
            ", ".join(one.addresses),
            one.process or "?",
            str(one.pid or "?"),
            short_age(now - one.since) if one.since else "?",
        )
        for one in found
    ]
    empty = f"nothing listens in `{row.name}`"
    names = [str(one.port) for one in found]
    call.out.table(PORT_COLUMNS, rows, cuts=PORT_CUTS, is_wide=call.args.wide, names=names, empty=empty)
    if found:
        call.out.note(f"`sbx forward {row.name} {found[0].port}` opens one here")
    return 0
