"""Servers that are killed while they make, use and end sandboxes leave none of it behind, and no write is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.mcp_process import Lines, mcp_lines
from tests.support.sbx import Sbx

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

_WRITES = 100


def test_servers_that_are_killed_leave_no_process_and_no_sandbox_half_made_or_for_one_command(sbx: Sbx) -> None:
    for tool, arguments in (
        ("sandbox_run", {"name": "once", "command": "sleep 600"}),
        ("sandbox_create", {"name": "made"}),
    ):
        with mcp_lines(sbx) as server:
            server.initialize()
            asked = {"name": tool, "arguments": {**arguments, "memory": 512}, "_meta": {"progressToken": 1}}
            server.send("tools/call", asked)
            # It tells what it does: it is in the middle of it.
            assert server.read() is not None
            server.process.kill()
            server.process.wait()
    # Whoever looks next finishes what was begun, or takes it back.
    while (states := {row["name"]: row["state"] for row in sbx.ok("ls", "--json").json}) not in (
        {},
        {"made": "RUNNING"},
    ):
        assert set(states) <= {"once", "made"}
    if states:
        sbx.ok("exec", "made", "--", "true")
        sbx.ok("rm", "made", "--yes")
    assert sbx.ok("ls", "--all", "-q").out == ""
    assert sbx.ok("mcp", "ls", "--json").json == []
    assert _servers_of(sbx) == []


def test_four_servers_that_write_at_once_lose_nothing(bare: Sbx) -> None:
    def write(server: Lines) -> None:
        for _ in range(_WRITES):
            server.call("sandbox_events")

    with ExitStack() as stack:
        servers = [stack.enter_context(mcp_lines(bare)) for _ in range(4)]
        for server in servers:
            server.initialize()
        with ThreadPoolExecutor() as threads:
            list(threads.map(write, servers))
        # Each call is written down under its client, a moment after its answer.
        while (counted := [row["calls"] for row in bare.ok("mcp", "ls", "--json").json]) != [_WRITES] * 4:
            assert len(counted) == 4 and max(counted) <= _WRITES


def _servers_of(sbx: Sbx) -> list[int]:
    """Processes of servers that work in this home."""
    wanted = f"SBX_HOME={sbx.home}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, env = ((process / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
        except OSError:
            continue
        if b"--mcp" in words and wanted in env:
            found.append(int(process.name))
    return found
