"""The person at the machine sees each client and what it did last, and can have it wait or cut it off."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from sbxtui.core.errors import UsageError
from sbxtui.mcp_server.options import Options
from tests.support.mcp_inproc import mcp_inproc
from tests.support.mcp_process import Lines, error_of, mcp_lines
from tests.support.sbx import Sbx

DEADLINE_S = 60


def listed(server: Lines, number: int) -> dict[str, Any]:
    told = server.answer(number)["result"]
    return dict(json.loads(told["content"][0]["text"]))


def seen_after(sbx: Sbx, *, calls: int) -> dict[str, Any]:
    """The one client, once that many calls of it are written down: of a flood they are only every so often."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        (client,) = sbx.ok("mcp", "ls", "--json").json
        if client["calls"] >= calls:
            return dict(client)
        assert time.monotonic() < deadline_s, client


def test_a_client_is_seen_paused_let_go_on_and_cut_off(bare: Sbx) -> None:
    with mcp_lines(bare) as server:
        server.initialize()
        assert bare.ok("mcp", "ls", "--json").json == []
        assert listed(server, server.send("tools/call", {"name": "sandbox_list", "arguments": {}}))["ok"] is True
        assert server.call("sandbox_status", name="none")["isError"] is True
        client = seen_after(bare, calls=2)
        assert client["client"] == f"mcp:test-agent#{server.process.pid}"
        assert (client["last_tool"], client["last_result"]) == ("sandbox_status", "not_found")
        bare.ok("mcp", "pause", "test-agent")
        waiting = server.send("tools/call", {"name": "sandbox_list", "arguments": {}})
        # What is read is told all the same: the server lives.
        assert server.ask("ping")["result"] == {}
        assert not [one for one in server.said if one.get("id") == waiting]
        bare.ok("mcp", "resume", str(server.process.pid))
        assert listed(server, waiting)["ok"] is True
        bare.ok("mcp", "end", "test-agent")
        assert server.process.wait(DEADLINE_S) == 0
    assert bare("mcp", "pause", "test-agent").code == 4
    told = [json.loads(line) for line in bare.ok("events", "--json").stdout.splitlines()]
    kinds = [(event["kind"], event["actor"].partition("#")[0]) for event in told if event["kind"].startswith("client.")]
    assert kinds == [
        ("client.connected", "mcp:test-agent"),
        ("client.paused", "cli:you"),
        ("client.running", "cli:you"),
        ("client.ended", "cli:you"),
    ]


def waiting(sbx: Sbx) -> list[dict[str, object]]:
    """The calls that wait for a person, as scripts see them."""
    return [call for client in sbx.ok("mcp", "ls", "--json").json for call in client["waiting"]]


def parked(server: Lines, tool: str, **arguments: object) -> int:
    """Ask for something that has to be approved; the number of the request, once it waits."""
    number = server.send("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}})
    said = server.read()
    assert said is not None and "waits until a person approves" in said["params"]["message"]
    return number


def test_each_change_of_a_client_waits_until_a_person_approves_or_denies_it(bare: Sbx) -> None:
    secret = {"name": "none", "command": "true", "env": {"HARMLESS": "secret words"}, "stdin": "secret words"}
    with mcp_lines(bare, "--ask") as server:
        server.initialize()
        # What changes nothing is asked for as ever.
        assert listed(server, server.send("tools/call", {"name": "sandbox_list", "arguments": {}}))["ok"] is True
        for answer, code in {"approve": "not_found", "deny": "denied_by_policy"}.items():
            number = parked(server, "sandbox_exec", **secret)
            (call,) = waiting(bare)
            assert (call["tool"], call["words"]) == ("sandbox_exec", "name=none command=true env=HARMLESS stdin=<12 B>")
            bare.ok("mcp", answer, str(call["call"]))
            assert listed(server, number)["error"]["code"] == code
        assert bare("mcp", "approve", str(call["call"])).code == 4
        # Who trusts it again need not answer, nor need whoever cuts it off.
        number = parked(server, "sandbox_remove", name="none", confirm=True)
        assert "sandbox_remove name=none confirm=true" in bare.ok("mcp", "ls").out
        bare.ok("mcp", "resume", "test-agent")
        assert listed(server, number)["error"]["code"] == "not_found"
        bare.ok("mcp", "ask", "test-agent")
        parked(server, "sandbox_remove", name="none", confirm=True)
        bare.ok("mcp", "end", "test-agent")
        assert server.process.wait(DEADLINE_S) == 0
    told = [json.loads(line)["kind"] for line in bare.ok("events", "--json").stdout.splitlines()]
    kinds = "connected asks approved asks denied asks running asking asks ended"
    assert [kind for kind in told if kind.startswith("client.")] == [f"client.{word}" for word in kinds.split()]
    # What a call brings is nowhere kept, under whatever name it came.
    files = [path for path in bare.home.rglob("*") if path.is_file()]
    assert [path for path in files if b"secret words" in path.read_bytes()] == []


async def test_a_call_that_nobody_approves_is_refused_after_its_time(bare: Sbx) -> None:
    env = {"SBX_MCP_APPROVAL_TIMEOUT_MS": "1"}
    async with mcp_inproc(bare, options=Options(asks=True), env=env) as client:
        error = error_of(await client.call_tool("sandbox_fork", {"name": "none"}))
        assert error["code"] == "denied_by_policy" and "nobody approved this call" in error["message"]
        assert waiting(bare) == []
        # Looking is no change, whatever else the tool can do.
        found = error_of(await client.call_tool("sandbox_forward", {"name": "none", "action": "list"}))
        assert found["code"] == "not_found"


async def test_calls_that_the_settings_name_wait_for_a_person_whatever_the_client_may_do(bare: Sbx) -> None:
    async with mcp_inproc(bare, env={"SBX_MCP_APPROVE": "sandbox_start, sandbox_forward"}) as client:
        for answer, code in {"approve": "not_found", "deny": "denied_by_policy"}.items():
            asked = asyncio.create_task(client.call_tool("sandbox_start", {"name": "none"}))
            async with asyncio.timeout(DEADLINE_S):
                while not (calls := await asyncio.to_thread(waiting, bare)):
                    pass
            await asyncio.to_thread(bare.ok, "mcp", answer, str(calls[0]["call"]))
            assert error_of(await asked)["code"] == code
        # What they do not name goes on, and so does a look.
        assert error_of(await client.call_tool("sandbox_stop", {"name": "none"}))["code"] == "not_found"
        looked = error_of(await client.call_tool("sandbox_forward", {"name": "none", "action": "list"}))
        assert looked["code"] == "not_found"
    with pytest.raises(UsageError, match="no tool `sandbox_strat`"):
        async with mcp_inproc(bare, env={"SBX_MCP_APPROVE": "sandbox_strat"}):
            pass
