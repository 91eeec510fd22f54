"""Servers that are killed while they make, use and end sandboxes leave none of it behind, and no write is lost."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from sbxtui.settings import locate_home
from sbxtui.store.db import Store
from sbxtui.store.leases import Leases
from tests.support.mcp_process import Lines, mcp_lines
from tests.support.sbx import Sbx, sbx_home

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

_WRITES = 500


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
    assert [words for words in _processes_of(sbx) if b"--mcp" in words] == []


# What a server is in the middle of when it is killed; `N` is its number. Of the first it was asked for nothing yet.
_WORK: tuple[tuple[str, dict[str, object]] | None, ...] = (
    None,
    ("sandbox_run", {"name": "once-N", "command": "sleep 600", "memory": 512}),
    ("sandbox_list", {}),
    ("sandbox_create", {"name": "made-N", "memory": 512}),
    ("sandbox_exec_start", {"name": "app", "command": "sleep", "args": ["600"]}),
)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_fifty_servers_killed_at_any_moment_leave_nothing_behind(tmp_path: Path) -> None:
    with sbx_home(tmp_path / "home") as sbx:
        home = locate_home(sbx.environment())
        sbx.ok("create", "app", "--memory", "512")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(partial(_killed, sbx), range(50)))
        # Whoever looks next finishes what was begun, or takes it back.
        while not _is_settled(names := {row["name"]: row["state"] for row in sbx.ok("ls", "--json").json}):
            pass
        for name in names:
            sbx.ok("exec", name, "--", "true")
        sbx.ok("rm", "--all", "--yes", "--wait")
        assert sbx.ok("ls", "--all", "-q").out == "" and sbx.ok("mcp", "ls", "--json").json == []
        # The home is as good as ever.
        sbx.ok("run", "--memory", "512", "--", "true")
        with closing(Store.open(home)) as store:
            assert Leases(store).list("mint") == []
        sbx.ok("runner", "stop")
        sbx.ok("local", "stop")
        assert _processes_of(sbx) == []
        assert [*home.bells_dir.glob("*"), *home.state_dir.glob("tmp*")] == []


def _killed(sbx: Sbx, number: int) -> None:
    """Start a server and kill it in the middle of something: sooner or later in it, as its number has it."""
    with mcp_lines(sbx) as server:
        if (work := _WORK[number % len(_WORK)]) is None:
            return
        tool, arguments = work
        if "name" in arguments:
            arguments = {**arguments, "name": str(arguments["name"]).replace("-N", f"-{number}")}
        server.initialize()
        server.send("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}})
        for _ in range(number // len(_WORK) % 3 + 1):
            if "result" in (server.read() or {}):
                break


def _is_settled(states: Mapping[str, str]) -> bool:
    return all(state == "RUNNING" and not name.startswith("once-") for name, state in states.items())


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


def _processes_of(sbx: Sbx) -> list[list[bytes]]:
    """The command lines of processes that work in this home."""
    wanted = f"SBX_HOME={sbx.home}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, env = ((process / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
        except OSError:
            continue
        if wanted in env:
            found.append(words)
    return found
