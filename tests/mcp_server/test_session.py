"""A working session over stdio, in both eras of the protocol: a real server, a real local cloud, real sandboxes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from mcp import Client

from sbxtui.mcp_server.stdio import _SCRIPT_S
from tests.support.mcp_process import ERAS, Era, data_of, error_of, mcp_client, mcp_lines
from tests.support.sbx import Sbx, is_running_in

DEADLINE_S = 60


async def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    return data_of(await client.call_tool(tool, arguments))


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_makes_a_sandbox_works_in_it_and_removes_it(sbx: Sbx, era: Era) -> None:
    name = f"agent-{era}"
    async with mcp_client(sbx, era=era) as client:
        made = await call(client, "sandbox_create", name=name, memory=512)
        assert (made["name"], made["state"], made["memory_mib"]) == (name, "RUNNING", 512)
        await call(client, "sandbox_fs_write", name=name, path="dir/answer.py", content="print(6 * 7)\n")
        ran = await call(client, "sandbox_exec", name=name, command="python3", args=["dir/answer.py"])
        assert (ran["stdout"], ran["exit_code"], ran["stdout_truncated"]) == ("42\n", 0, False)
        failed = await call(client, "sandbox_shell", name=name, command="echo no >&2; exit 3")
        assert (failed["stderr"], failed["exit_code"]) == ("no\n", 3)
        read = await call(client, "sandbox_fs_read", name=name, path="dir/answer.py")
        assert (read["content"], read["total_bytes"], read["truncated"]) == ("print(6 * 7)\n", 13, False)
        listed = await call(client, "sandbox_fs_list", name=name, path="dir")
        assert [one["path"] for one in listed["entries"]] == ["answer.py"]
        assert name in [one["name"] for one in (await call(client, "sandbox_list"))["sandboxes"]]
        refused = error_of(await client.call_tool("sandbox_remove", {"name": name}))
        assert (refused["code"], refused["retryable"]) == ("confirm_required", False)
        assert (await call(client, "sandbox_remove", name=name, confirm=True))["removed"] is True
        gone = error_of(await client.call_tool("sandbox_exec", {"name": name, "command": "true"}))
        assert gone["code"] == "not_found" and "sandbox_list" in gone["hint"]
    events = [json.loads(line) for line in sbx.ok("events", name, "--json").stdout.splitlines()]
    assert {event["actor"].partition("#")[0] for event in events} == {"mcp:test-agent"}
    assert {"sandbox.tracked", "files.write", "job.start"} <= {event["kind"] for event in events}


def test_a_client_that_dies_leaves_its_sessions_and_nothing_else(sbx: Sbx) -> None:
    sbx.ok("create", "left", "--memory", "512", "--replace", "--yes")
    with mcp_lines(sbx) as server:
        server.initialize()
        told = server.call("sandbox_exec_start", name="left", command="sleep", args=["1111"])
        session = json.loads(told["content"][0]["text"])["data"]["session_id"]
        kept = server.call("sandbox_shell", name="left", command="sleep 2222; true", wait_ms=1)
        assert json.loads(kept["content"][0]["text"])["data"]["state"] == "running"
        server.send(
            "tools/call", {"name": "sandbox_shell", "arguments": {"name": "left", "command": "sleep 3333; true"}}
        )
        while not is_running_in(sbx, "left", "sleep 3333"):
            # One slow call holds up no other.
            assert server.ask("ping")["result"] == {}
        # Who ends right behind a request is a script, and gets its answer.
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 2 * _SCRIPT_S:
            assert is_running_in(sbx, "left", "sleep 3333")
        server.hang_up()
        assert server.process.wait(DEADLINE_S) == 0
        assert server.stderr() == ""
    assert is_running_in(sbx, "left", "sleep 1111") and is_running_in(sbx, "left", "sleep 2222")
    while is_running_in(sbx, "left", "sleep 3333"):
        pass
    assert session in sbx.ok("jobs", "left", "-q").out
    assert sbx.ok("mcp", "ls", "--json").json == []
