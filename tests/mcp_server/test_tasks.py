"""Long commands as tasks, for clients that say they know them: they are jobs, so they outlive their server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mcp_process import MODERN, Lines, mcp_lines
from tests.support.sbx import Sbx

pytestmark = pytest.mark.long

TASKS = "io.modelcontextprotocol/tasks"
UNTIL_GO = "until [ -e go ]; do sleep 0.1; done"
KNOWS: dict[str, Any] = {
    **MODERN["_meta"],
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
}


def asked(server: Lines, method: str, meta: dict[str, Any] = KNOWS, **params: object) -> dict[str, Any]:
    return server.ask(method, {**params, "_meta": meta})


def begun(server: Lines, line: str, meta: dict[str, Any] = KNOWS, tool: str = "sandbox_shell") -> dict[str, Any]:
    arguments = {"command": line, "wait_ms": 1, **({"name": "app"} if tool == "sandbox_shell" else {"memory": 512})}
    told: dict[str, Any] = asked(server, "tools/call", meta, name=tool, arguments=arguments)["result"]
    return told


def ended(server: Lines, task: str) -> dict[str, Any]:
    """A task once it goes on no more."""
    while (told := asked(server, "tasks/get", taskId=task)["result"])["status"] == "working":
        assert "result" not in told
    return dict(told)


def test_a_command_that_goes_on_is_a_task_which_any_server_tells_of_and_ends(sbx: Sbx) -> None:
    sbx.ok("create", "app", "--memory", "512")

    def go(name: str) -> None:
        sbx.ok("exec", name, "--", "touch", "go")

    with mcp_lines(sbx) as server:
        told = asked(server, "server/discover")["result"]["capabilities"]
        assert told["extensions"] == {TASKS: {}} and "tasks" not in told
        task = begun(server, "sleep 600 & echo begun; wait")
        assert (task["resultType"], task["status"], "result" in task) == ("task", "working", False)
        assert task["ttlMs"] is None and task["pollIntervalMs"] > 0
        # Others get the reply they know.
        plain = begun(server, "sleep 600", MODERN["_meta"])
        assert plain["structuredContent"]["data"]["state"] == "running"
        assert asked(server, "tasks/get", MODERN["_meta"], taskId=task["taskId"])["error"]["code"] == -32021
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert asked(server, method, taskId="no-such-task")["error"]["code"] == -32602
        for method in ("tasks/list", "tasks/result"):
            assert asked(server, method, taskId=task["taskId"])["error"]["code"] == -32601
        server.process.kill()
    with mcp_lines(sbx) as server:
        assert asked(server, "tasks/get", taskId=task["taskId"])["result"]["status"] == "working"
        ack = asked(server, "tasks/cancel", taskId=task["taskId"])["result"]
        assert ack["resultType"] == "complete" and "taskId" not in ack
        assert ended(server, task["taskId"])["status"] == "cancelled"
        short = begun(server, f"{UNTIL_GO}; echo said; exit 3")
        go("app")
        done = ended(server, short["taskId"])
        assert done["status"] == "completed" and done["result"]["structuredContent"]["data"]["exit_code"] == 3
        assert done["result"]["structuredContent"]["data"]["stdout"] == "said\n"
        once = begun(server, f"{UNTIL_GO}; echo once", tool="sandbox_run")
        go(*({*sbx.ok("ls", "-q").out.split()} - {"app"}))
        assert ended(server, once["taskId"])["result"]["structuredContent"]["data"]["stdout"] == "once\n"
    # With the server goes the sandbox that was made for one command: the runner may be at it while we look.
    while sbx.ok("ls", "-q").out != "app":
        pass
