"""The clients of our MCP servers, for the person at this machine: who is there, and what each of them may do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sbxtui.cli.call import ACTOR, Call
from sbxtui.cli.fitting import Cut
from sbxtui.core.clients import Allowed, Answer, Approval, McpClient
from sbxtui.core.text import iso, short_age

_PREFIX = "mcp:"
_NOBODY = "no client is connected: `sbx mcp config --client NAME --write` tells one of this server"

_CUTS = (Cut("CLIENT", 16), Cut("CALLS", 0), Cut("LAST CALL", 10), Cut("RESULT", 8), Cut("RESULT", 0), Cut("AGE", 0))
# What a person is asked for stays longest: it is what the answer hangs on.
_CALL_CUTS = (Cut("OF", 8), Cut("ASKS FOR", 24), Cut("OF", 0), Cut("ASKS FOR", 8))


def ls(call: Call) -> int:
    """List the clients that are connected, and their calls that wait for an answer."""
    found, waiting = call.services.clients.list(), call.services.clients.approvals.list()
    if call.out.is_json:
        call.out.json([client_json(one, [each for each in waiting if each.actor == one.actor]) for one in found])
    now = datetime.now(UTC)
    rows = [
        (
            one.actor.removeprefix(_PREFIX),
            one.allowed.value,
            one.tool or "-",
            one.code or "-",
            str(one.calls),
            short_age(now - one.seen_at),
        )
        for one in found
    ]
    heads = ("CLIENT", "STATE", "LAST CALL", "RESULT", "CALLS", "AGE")
    names = [one.actor.removeprefix(_PREFIX) for one in found]
    call.out.table(heads, rows, cuts=_CUTS, is_wide=call.args.wide, names=names, empty=_NOBODY)
    if waiting and not (call.out.is_json or call.out.is_quiet):
        call.out.line("")
        asked = [
            (str(one.id), one.actor.removeprefix(_PREFIX), f"{one.tool} {one.words}", short_age(one.expires_at - now))
            for one in waiting
        ]
        call.out.table(("CALL", "OF", "ASKS FOR", "LEFT"), asked, cuts=_CALL_CUTS, is_wide=call.args.wide)
        call.out.note("`sbx mcp approve CALL` lets one go on, `sbx mcp deny CALL` refuses it")
    return 0


def pause(call: Call) -> int:
    """Have a client's calls wait."""
    return _allow(call, Allowed.PAUSED)


def ask(call: Call) -> int:
    """Have each call of a client that would change something wait for an answer."""
    return _allow(call, Allowed.ASKING)


def resume(call: Call) -> int:
    """Let a client go on."""
    return _allow(call, Allowed.RUNNING)


def end(call: Call) -> int:
    """Cut a client off."""
    return _allow(call, Allowed.ENDED)


def approve(call: Call) -> int:
    """Let a waiting call go on."""
    return _answer(call, Answer.APPROVED)


def deny(call: Call) -> int:
    """Refuse a waiting call."""
    return _answer(call, Answer.DENIED)


def _allow(call: Call, allowed: Allowed) -> int:
    client = call.services.clients.find(call.args.mcp_client)
    call.services.clients.allow(client, allowed, actor=ACTOR)
    call.out.line(client.actor.removeprefix(_PREFIX))
    call.out.result({"client": client.actor, "state": allowed.value})
    return 0


def _answer(call: Call, answer: Answer) -> int:
    approvals = call.services.clients.approvals
    approval = approvals.find(call.args.mcp_call)
    approvals.answer(approval, answer, actor=ACTOR)
    call.out.line(str(approval.id))
    call.out.result({"call": approval.id, "client": approval.actor, "answer": answer.value})
    return 0


def client_json(client: McpClient, waiting: Sequence[Approval]) -> dict[str, object]:
    """A client as scripts see it."""
    return {
        "client": client.actor,
        "name": client.name,
        "pid": int(client.owner.partition(":")[0]),
        "state": client.allowed.value,
        "connected_at": iso(client.connected_at),
        "seen_at": iso(client.seen_at),
        "last_tool": client.tool or None,
        "last_result": client.code or None,
        "calls": client.calls,
        "waiting": [
            {
                "call": one.id,
                "tool": one.tool,
                "words": one.words,
                "asked_at": iso(one.asked_at),
                "expires_at": iso(one.expires_at),
            }
            for one in waiting
        ],
    }
