"""`network`: what a sandbox may reach, and what it asked for."""

from __future__ import annotations

from sbxtui.cli.call import Call
from sbxtui.core.destinations import PRESETS
from sbxtui.core.egress import NO_NETWORK, NetworkPolicy
from sbxtui.core.errors import UsageError
from sbxtui.core.hosts import authority
from sbxtui.core.model import Registration
from sbxtui.core.text import iso, short_size
from sbxtui.services.network import NetworkEntry, NetworkState, policy_of


async def network(call: Call) -> int:
    """Show, change, or follow."""
    args = call.args
    if args.presets:
        return _show_presets(call)
    if not args.sandbox:
        raise UsageError("`sbx network` was given no sandbox", hint="sbx network NAME, or sbx network --presets")
    if args.follow and not args.log:
        raise UsageError("--follow is about the log", hint=f"sbx network {args.sandbox} --log --follow")
    wants_change = bool(args.allow or args.deny or args.none or args.internet)
    if wants_change and args.log:
        raise UsageError("--log shows and changes nothing", hint="change the network first, then look")
    row = await call.services.sandboxes.find(args.sandbox)
    if args.log:
        return await _show_log(call, row)
    state = await call.services.networks.state(row)
    if wants_change:
        state = await call.services.networks.change(row, _wanted(call, state))
    _show_state(call, row, state)
    return 0


def _wanted(call: Call, state: NetworkState) -> NetworkPolicy:
    args = call.args
    if args.internet:
        if args.none or args.allow or args.deny:
            raise UsageError("--internet already allows everything", hint="give it alone")
        return NetworkPolicy(is_internet=True)
    policy = NO_NETWORK if args.none else policy_of(state.text)
    if args.allow:
        policy = policy.plus(_rules(args.allow))
    return policy.minus(_rules(args.deny)) if args.deny else policy


def _rules(given: list[str]) -> list[str]:
    return [rule for part in given for rule in part.split(",")]


def _show_state(call: Call, row: Registration, state: NetworkState) -> None:
    policy = policy_of(state.text) if state.is_enforced and state.text not in ("managed", "connector") else NO_NETWORK
    rules = [("*." if rule.is_wildcard else "") + authority(rule.host, rule.port) for rule in policy.rules]
    call.out.result(
        {
            "name": row.name,
            "network": state.text,
            "is_enforced": state.is_enforced,
            "rules": rules,
            "open_connections": state.open_connections,
            "cut_connections": state.cut_connections,
        }
    )
    call.out.line(state.text)
    if not state.is_enforced:
        call.out.note("note: nothing is enforced: without isolation it shares this machine's network")
    if state.text == "internet":
        call.out.note("note: by HTTP and CONNECT through its proxy; no UDP, and no private addresses")
    if state.cut_connections:
        call.out.note(f"{row.name}: {state.cut_connections} open connections were cut")


def _show_presets(call: Call) -> int:
    call.out.result({name: list(rules) for name, rules in PRESETS.items()})
    for name, rules in PRESETS.items():
        call.out.line(name if call.out.is_quiet else f"{name:<12} {' '.join(rules)}")
    return 0


async def _show_log(call: Call, row: Registration) -> int:
    entries = await call.services.networks.log(row)
    shown = entries[-call.args.tail :] if call.args.tail else []
    for entry in shown:
        _print(call, entry)
    if not call.args.follow:
        return 0
    call.out.ends_by_interrupt = True
    async for entry in call.services.networks.follow(row, after=entries[-1].seq if entries else 0):
        _print(call, entry)
    return 0


def _print(call: Call, entry: NetworkEntry) -> None:
    if call.out.is_json:
        call.out.json(_entry_json(entry))
    else:
        call.out.line(_entry_line(entry))


def _entry_json(entry: NetworkEntry) -> dict[str, object]:
    return {
        "seq": entry.seq,
        "at": iso(entry.at),
        "action": entry.action,
        "host": entry.host or None,
        "port": entry.port or None,
        "method": entry.method or None,
        "job": entry.job or None,
        "reason": entry.reason or None,
        "address": entry.address or None,
        "network": entry.network or None,
        "secrets": entry.secrets.split(",") if entry.secrets else None,
        "sent_bytes": entry.sent_bytes,
        "received_bytes": entry.received_bytes,
        "duration_s": entry.duration_s,
        "left_out": entry.left_out,
    }


def _entry_line(entry: NetworkEntry) -> str:
    place = authority(entry.host, entry.port) if entry.host else ""
    amount = ""
    if entry.sent_bytes is not None and entry.received_bytes is not None:
        amount = f"sent {short_size(entry.sent_bytes)}, received {short_size(entry.received_bytes)}"
    left_out = f"({entry.left_out} before it left out)" if entry.left_out else ""
    words = entry.reason or entry.network or entry.secrets or amount
    job = f"job {entry.job}" if entry.job else ""
    parts = (f"{entry.at.astimezone():%H:%M:%S}  {entry.action:<8} {entry.method:<7} {place}", words, job, left_out)
    return "  ".join(part for part in parts if part)
