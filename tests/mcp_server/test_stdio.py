"""The process at the other end of the pipe: it starts, answers and ends well, whatever is sent."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from mcp_types import JSONRPCResponse

from sbxtui.mcp_server.stdio import _encoded
from tests.support.mcp_process import mcp_lines
from tests.support.sbx import Sbx

DEADLINE_S = 60


def test_a_client_that_leaves_ends_the_server_quietly_and_no_backend_was_asked(bare: Sbx) -> None:
    with mcp_lines(bare) as server:
        told = server.initialize()
        assert told["serverInfo"]["name"] == "sbx"
        assert "sandbox_exec" in [tool["name"] for tool in server.ask("tools/list")["result"]["tools"]]
        server.hang_up()
        server.rest()
        assert server.process.wait(DEADLINE_S) == 0
        assert server.stderr() == ""
    assert not (bare.home / "state").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_once_and_quietly(bare: Sbx, number: signal.Signals) -> None:
    with mcp_lines(bare, "--ask") as server:
        server.initialize()
        # In the middle of a call, which waits for a person.
        asked = {"name": "sandbox_start", "arguments": {"name": "none"}, "_meta": {"progressToken": 1}}
        server.send("tools/call", asked)
        assert server.read() is not None
        server.process.send_signal(number)
        assert server.process.wait(DEADLINE_S) == 128 + number
        assert server.stderr() == ""


def test_what_is_asked_right_before_the_end_is_answered(bare: Sbx) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "script", "version": "1"}}
    lines: list[dict[str, object]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "sandbox_list", "arguments": {}}},
    ]
    done = bare("--mcp", stdin=b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert json.loads(answers[1]["result"]["content"][0]["text"])["data"]["sandboxes"] == []
    assert (done.code, done.err) == (0, "")


def test_lines_that_are_no_messages_harm_nothing(bare: Sbx) -> None:
    with mcp_lines(bare) as server:
        server.initialize()
        for line in (b"\n", b"not json\n", b"[1, 2]\n", b'{"jsonrpc": "2.0"}\n', b"\xff\xfe\n", b'"\\ud800"\n'):
            server.raw(line)
        assert server.ask("ping")["result"] == {}
        server.raw(b'{"jsonrpc": "2.0", "id": 77, "meth')
        server.raw(b'od": "ping"}\r\n')
        assert server.answer(77)["result"] == {}
        assert server.ask("no/such/method")["error"]["code"] == -32601
        assert server.ask("tools/call", {"name": "no_such_tool", "arguments": {}})["error"]["code"] == -32602


# Starts a server on a pipe that a program of its own holds open, and dies.
_PARENT = """
import os, subprocess, sys
reading, writing = os.pipe()
server = subprocess.Popen([sys.executable, "-m", "sbxtui", "--mcp"], stdin=reading, stdout=subprocess.PIPE)
nothing = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
holder = subprocess.Popen(["sleep", "600"], pass_fds=[writing], **nothing)
os.write(writing, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
server.stdout.readline()
print(server.pid, holder.pid, flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_a_server_whose_parent_died_ends_though_its_pipe_is_held_open(bare: Sbx) -> None:
    starting = [sys.executable, "-c", _PARENT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(starting, env=bare.environment(), cwd=bare.home, **pipes) as parent:  # type: ignore[call-overload]
        server, holder = map(int, parent.stdout.readline().split())
        death = os.pidfd_open(server)
        try:
            parent.stdin.close()
            assert select.select([death], [], [], DEADLINE_S)[0] == [death]
        finally:
            os.kill(holder, signal.SIGKILL)
            os.close(death)


# Prints to standard output, and reads from standard input, as soon as anything large is imported.
_CHATTY = """
import builtins, os, sys
real = builtins.__import__
def chatty(name, *rest, **more):
    if name == "mcp_types" and name not in sys.modules:
        print("hello from an import")
        os.write(1, b"and past Python\\n")
        os.read(0, 10)
    return real(name, *rest, **more)
builtins.__import__ = chatty
"""


def test_whatever_a_library_prints_or_reads_the_pipe_belongs_to_the_protocol(bare: Sbx) -> None:
    (bare.home / "sitecustomize.py").write_text(_CHATTY)
    with mcp_lines(replace(bare, env={"PYTHONPATH": str(bare.home)})) as server:
        server.initialize()
        assert server.ask("ping")["result"] == {}
        server.hang_up()
        server.rest()
        assert server.process.wait(DEADLINE_S) == 0
        assert {"hello from an import", "and past Python"} <= set(server.stderr().splitlines())


def test_bytes_that_are_no_text_do_not_silence_the_server() -> None:
    line = _encoded(JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": "a\udc80b"}))
    assert b"\n" not in line and json.loads(line)["id"] == 1
    line.decode()
