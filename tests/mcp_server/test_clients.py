"""The person at the machine sees each client and what it did last, and can have it wait or cut it off."""

from __future__ import annotations

import json

from tests.support.mcp_process import Lines, mcp_lines
from tests.support.sbx import Sbx

DEADLINE_S = 60


def listed(server: Lines, number: int) -> dict[str, object]:
    told = server.answer(number)["result"]
    return dict(json.loads(told["content"][0]["text"]))


def test_a_client_is_seen_paused_let_go_on_and_cut_off(bare: Sbx) -> None:
    with mcp_lines(bare) as server:
        server.initialize()
        assert bare.ok("mcp", "ls", "--json").json == []
        assert listed(server, server.send("tools/call", {"name": "sandbox_list", "arguments": {}}))["ok"] is True
        assert server.call("sandbox_status", name="none")["isError"] is True
        (client,) = bare.ok("mcp", "ls", "--json").json
        assert client["client"] == f"mcp:test-agent#{server.process.pid}"
        assert (client["last_tool"], client["last_result"], client["calls"]) == ("sandbox_status", "not_found", 2)
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
