"""Clients that send anything, read slowly, or stop in the middle: whoever asked is answered, and nothing hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from sbxtui.mcp_server.stdio import LINE_BYTES
from tests.support.mcp_process import MODERN, mcp_lines
from tests.support.sbx import Sbx

DEADLINE_S = 60
_INVALID_REQUEST, _INVALID_PARAMS = -32600, -32602

# Each must be answered with an error under its own number.
_BROKEN_REQUESTS = {
    499: b'{"jsonrpc":"2.0","id":499,"method":"ping","params":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b"}",
    500: b'{"jsonrpc":"2.0","id":500,"method":"tools/call","params":[1]}',
    501: b'{"jsonrpc":"2.0","id":501,"method":5}',
    502: b'{"id":502,"method":"ping"}',
    503: b'[{"jsonrpc":"2.0","id":503,"method":"ping"}]',
    504: b'{"jsonrpc":"2.0","id":504,"method":"tools/call","params":{"name":7}}',
    505: b'{"jsonrpc":"2.0","id":505,"method":"tools/call","params":{"name":"sandbox_list","arguments":[1]}}',
}
_NOISE = (
    b"\n\n",
    b"\0\0\n",
    b"{\n",
    b"[" * 100_000 + b"\n",
    b'"\xff\xfe"\n',
    b'{"result":1,"id":6}\n',
    b"[true, null]\n",
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}\n',
)
# What tools must refuse by name of the argument, not fall over.
_BAD_ARGUMENTS: tuple[tuple[str, dict[str, object], str], ...] = (
    ("sandbox_exec", {"name": "half \ud800", "command": "true"}, "not_found"),
    ("sandbox_exec", {"name": "nul \0", "command": "true"}, "invalid_argument"),
    ("sandbox_exec", {"name": "x", "command": "true", "\ud800\x1b[31m": 1}, "invalid_argument"),
    ("sandbox_list", {"limit": 10**400}, "invalid_argument"),
    ("sandbox_list", {"limit": 1e308}, "invalid_argument"),
    ("sandbox_list", {"cursor": "x" * 100_000}, "invalid_argument"),
    ("sandbox_events", {"after_seq": 2**70}, "invalid_argument"),
    ("sandbox_wait", {"name": "x", "timeout": True}, "invalid_argument"),
    ("sandbox_create", {"name": "A B"}, "invalid_argument"),
    ("sandbox_status", {"name": "../../etc"}, "not_found"),
    ("sandbox_exec", {"name": "x", "command": "a" * (2 << 20)}, "not_found"),
)


def test_every_request_is_answered_however_it_is_broken(bare: Sbx) -> None:
    with mcp_lines(bare) as server:
        server.initialize()
        for noise in _NOISE:
            server.raw(noise + b"\n")
        for line in _BROKEN_REQUESTS.values():
            server.raw(line + b"\n")
        codes = [server.answer(number)["error"]["code"] for number in _BROKEN_REQUESTS]
        assert codes == [_INVALID_REQUEST] * 5 + [_INVALID_PARAMS] * 2
        # One that nobody keeps whole is answered, too, and what comes next is understood.
        server.raw(
            b'{"jsonrpc":"2.0","id":506,"method":"ping","params":{"a":"' + b"a" * (LINE_BYTES + (1 << 20)) + b'"}}\n'
        )
        assert server.answer(506)["error"]["code"] == _INVALID_REQUEST
        for tool, arguments, code in _BAD_ARGUMENTS:
            told = server.call(tool, **arguments)
            error = json.loads(told["content"][0]["text"])["error"]
            assert (told["isError"], error["code"], len(error["message"]) < 300) == (True, code, True), error
        assert server.ask("ping")["result"] == {}
        server.hang_up()
        server.rest()
        assert (server.process.wait(DEADLINE_S), server.stderr()) == (0, "")


def test_both_eras_are_spoken_on_one_pipe_and_an_unknown_revision_is_told_which_there_are(bare: Sbx) -> None:
    with mcp_lines(bare) as server:
        assert server.ask("server/discover", MODERN)["result"]["supportedVersions"] == ["2026-07-28"]
        assert server.ask("tools/list", MODERN)["result"]["tools"]
        future = {"_meta": {**MODERN["_meta"], "io.modelcontextprotocol/protocolVersion": "2099-01-01"}}
        assert server.ask("tools/list", future)["error"]["data"]["supported"] == ["2026-07-28"]
    for asked, spoken in {"2024-11-05": "2024-11-05", "2099-01-01": "2025-11-25"}.items():
        with mcp_lines(bare) as server:
            assert server.ask("tools/list")["error"]["code"] == _INVALID_PARAMS
            assert server.initialize(asked)["protocolVersion"] == spoken


def test_a_server_that_finds_nothing_in_order_greets_all_the_same_and_tells_what_is_wrong(bare: Sbx) -> None:
    (bare.home / "state").write_text("where a folder should be")
    with mcp_lines(replace(bare, env={"LC_ALL": "xx_YY.nothing", "PATH": ""})) as server:
        assert server.initialize()["serverInfo"]["name"] == "sbx"
        assert server.ask("tools/list")["result"]["tools"]
        told = server.call("runtime_check")
        assert told["isError"] and str(bare.home / "state") in told["content"][0]["text"]
        assert server.ask("ping")["result"] == {}


def test_a_client_that_reads_late_gets_every_answer_and_one_that_stopped_reading_is_left(bare: Sbx) -> None:
    with mcp_lines(bare) as server:
        server.initialize()
        # Far more than the pipe holds.
        numbers = [server.send("tools/list") for _ in range(40)]
        assert all(server.answer(number)["result"]["tools"] for number in numbers)
        assert server.process.stdout is not None
        server.process.stdout.close()
        assert server.process.wait(DEADLINE_S) == 0
        assert server.stderr() == ""


# Prints whenever something is imported, to the stream and to the descriptor, and has a program print.
_NOISY = """
import importlib.abc, os, sys
class Noisy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("mcp", "pydantic", "sbxtui.services.inventories", "sbxtui.control", "boto3"):
            print("banner", flush=True), os.write(1, b"raw"), os.system("echo child; cat")
sys.meta_path.insert(0, Noisy())
"""


def test_nothing_but_the_protocol_is_said_whatever_prints_and_a_pipe_that_never_waits_is_read(
    bare: Sbx, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_NOISY)
    env = {**bare.environment(), "PYTHONPATH": str(tmp_path)}
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    server = [sys.executable, "-m", "sbxtui", "--mcp"]
    ask = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "sandbox_list", "arguments": {}, **MODERN}}
    with subprocess.Popen(server, stdin=reading, stdout=-1, stderr=-1, env=env, cwd=bare.home) as process:
        os.close(reading)
        assert process.stdout is not None and process.stderr is not None
        for number in (1, 2):
            os.write(writing, json.dumps({**ask, "id": number}).encode() + b"\n")
            assert json.loads(process.stdout.readline())["id"] == number
        os.close(writing)
        rest, noise = process.communicate(timeout=DEADLINE_S)
        assert rest == b"" and noise.count(b"banner") > 1 and b"child" in noise
