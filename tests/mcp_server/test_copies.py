"""Copies of sandboxes, and sandboxes for one command that takes its time, as agents make them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client

from tests.support.mcp_inproc import mcp_inproc
from tests.support.mcp_process import data_of, error_of
from tests.support.sbx import Sbx

pytestmark = pytest.mark.long


async def call(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    return data_of(await client.call_tool(tool, arguments))


async def test_a_sandbox_is_forked_kept_and_made_again_and_one_for_one_command_goes_with_it(sbx: Sbx) -> None:
    small = {"memory": 512}
    async with mcp_inproc(sbx) as client:
        await call(client, "sandbox_create", name="app", **small)
        await call(client, "sandbox_fs_write", name="app", path="a.txt", content="one")
        kept = await call(client, "sandbox_snapshot", action="create", name="app", snapshot="before")
        assert (kept["snapshot"], kept["sandbox"]) == ("before", "app")
        forked = await call(client, "sandbox_fork", name="app", new_name="other", labels={"of": "test"})
        assert (forked["name"], forked["forked_from"], forked["labels"]) == ("other", "app", {"of": "test"})
        await call(client, "sandbox_fs_write", name="other", path="a.txt", content="two")
        made = await call(client, "sandbox_snapshot", action="restore", snapshot="before", new_name="again")
        assert (made["name"], made["snapshot"]) == ("again", "before")
        found = [
            (await call(client, "sandbox_fs_read", name=name, path="a.txt"))["content"]
            for name in ("app", "other", "again")
        ]
        assert found == ["one", "two", "one"]
        listed = await call(client, "sandbox_snapshot", action="list")
        assert [one["snapshot"] for one in listed["snapshots"]] == ["before"]
        refused = error_of(await client.call_tool("sandbox_snapshot", {"action": "remove", "snapshot": "before"}))
        assert refused["code"] == "confirm_required"
        await call(client, "sandbox_snapshot", action="remove", snapshot="before", confirm=True)
        nameless = error_of(await client.call_tool("sandbox_snapshot", {"action": "create"}))
        assert nameless["code"] == "invalid_argument"
        missing = error_of(await client.call_tool("sandbox_snapshot", {"action": "restore", "snapshot": "before"}))
        assert missing["code"] == "not_found"
        sbx.ok("rm", "other", "again", "--yes")
        line = "until [ -e go ]; do sleep 0.1; done; echo late"
        begun = await call(client, "sandbox_run", command=line, name="once", wait_ms=1, **small)
        assert (begun["state"], begun["name"]) == ("running", "once")
        await asyncio.to_thread(sbx.ok, "exec", "once", "--", "touch", "go")
        said = await call(client, "sandbox_exec_poll", session_id=begun["session_id"], wait_ms=45_000)
        assert (said["state"], said["stdout"], said["exit_code"]) == ("exited", "late\n", 0)
        # Told how it ended, nobody needs it any more.
        while (await asyncio.to_thread(sbx.ok, "ls", "-q")).out != "app":
            await asyncio.sleep(0.05)
        left = await call(client, "sandbox_run", command="sleep 600", name="left", wait_ms=1, **small)
        assert left["state"] == "running"
    # The end of the server is the end of it.
    assert sbx.ok("ls", "-q").out == "app"
