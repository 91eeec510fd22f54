"""v1 as older clients speak it: golden answers of our guest, and our host speaking it to a guest."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from sbxguest import wire
from sbxtui.core.errors import FileMissing, GuestUnreachable, UsageError
from sbxtui.guest.legacy import LegacyGuest
from sbxtui.guest.transport import Transport
from tests.support.guest_process import GuestProcess


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=60) as client:
        yield client


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def shell(script: str, **more: object) -> dict[str, object]:
    return {"command": "sh", "args": ["-c", script], **more}


GOLDEN_EXEC: list[tuple[dict[str, object], int, bytes, bytes]] = [
    ({"command": "true"}, 0, b"", b""),
    ({"command": "printf", "args": ["%s|", "a b", "$HOME"]}, 0, b"a b|$HOME|", b""),
    (shell("echo out; echo err >&2; exit 3"), 3, b"out\n", b"err\n"),
    (shell("printf '\\377\\000'"), 0, b"\xff\0", b""),
    (shell("echo $A", env={"A": "b c"}), 0, b"b c\n", b""),
    (shell("pwd", cwd="/"), 0, b"/\n", b""),
    (shell("kill -9 $$"), 137, b"", b""),
    (shell("cat"), 0, b"", b""),
    (shell("echo quick", timeout=30), 0, b"quick\n", b""),
]


@pytest.fixture
async def legacy(guest: GuestProcess) -> AsyncIterator[LegacyGuest]:
    async with Transport(guest.url, None) as transport:
        yield LegacyGuest(transport)


async def test_commands_answer_as_v1_says(http: httpx.AsyncClient) -> None:
    for body, code, out, err in GOLDEN_EXEC:
        answer = await http.post("/v1/exec", json=body)
        expected = {"exit_code": code, "encoding": "base64", "stdout": b64(out), "stderr": b64(err)}
        assert (answer.status_code, answer.json()) == (200, expected), body


REFUSED_EXEC: list[tuple[dict[str, object], int, str]] = [
    ({"command": "no-such-command"}, 400, "command not found: no-such-command"),
    ({"command": "/etc"}, 400, "not executable: /etc"),
    (shell("sleep 100", timeout=0.2), 504, "command timed out after 0.2s"),
    (shell("sleep 100 & wait", timeout=0.2), 504, "command timed out after 0.2s"),
    ({}, 400, "`command` must be a string"),
    ({"command": "true", "args": "x"}, 400, "`args` must be a list of strings"),
]


async def test_commands_are_refused_as_v1_says(http: httpx.AsyncClient) -> None:
    for body, status, detail in REFUSED_EXEC:
        answer = await http.post("/v1/exec", json=body)
        assert (answer.status_code, answer.json()["detail"]) == (status, detail), body
    answer = await http.post("/v1/exec", json=shell("true", cwd="/nowhere"))
    assert answer.status_code == 400 and "/nowhere" in answer.json()["detail"]


async def test_a_lot_of_output_comes_back_exactly(http: httpx.AsyncClient) -> None:
    answer = (await http.post("/v1/exec", json=shell("seq 1 3000000"))).json()
    expected = "".join(f"{number}\n" for number in range(1, 3_000_001)).encode()
    assert base64.b64decode(answer["stdout"]) == expected and "truncated" not in answer


async def test_a_caller_that_goes_away_ends_its_command(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    body = shell("trap 'touch ended' TERM; touch started; sleep 1000 & wait")
    request = json.dumps(body).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", guest.port)
    writer.write(b"POST /v1/exec HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(request), request))
    async with asyncio.timeout(15):
        while not (guest.workdir / "started").exists():
            await asyncio.sleep(0.01)
        writer.close()
        while (await http.get("/v2/jobs")).json()["jobs"]:
            await asyncio.sleep(0.01)


async def test_files_are_written_and_read_as_v1_says(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    content = os.urandom(1_000_001)
    answer = await http.post("/v1/fs/write", json={"path": "a/b", "content": b64(content), "encoding": "base64"})
    assert (answer.status_code, answer.json()) == (200, {"bytes_written": len(content)})
    assert (guest.workdir / "a/b").read_bytes() == content
    answer = await http.post("/v1/fs/read", json={"path": "a/b"})
    assert answer.json() == {"encoding": "base64", "content": b64(content)}
    answer = await http.post("/v1/fs/write", json={"path": "t", "content": "grüße", "encoding": "utf-8"})
    assert answer.json() == {"bytes_written": 7}
    for size in range(5):
        (guest.workdir / "n").write_bytes(b"x" * size)
        assert base64.b64decode((await http.post("/v1/fs/read", json={"path": "n"})).json()["content"]) == b"x" * size


REFUSED_FILES: list[tuple[str, dict[str, object], int]] = [
    ("read", {"path": "nothing"}, 404),
    ("read", {}, 400),
    ("read", {"path": "."}, 409),
    ("write", {"path": "f", "content": "!!", "encoding": "base64"}, 400),
    ("write", {"path": "f", "content": "x", "encoding": "rot13"}, 400),
    ("write", {"path": "f", "content": 7}, 400),
    ("write", {"content": "x"}, 400),
]


async def test_files_are_refused_as_v1_says(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    for verb, body, status in REFUSED_FILES:
        answer = await http.post(f"/v1/fs/{verb}", json=body)
        assert answer.status_code == status and answer.json()["detail"], body
        assert answer.headers[wire.ERROR_HEADER] == answer.json()["error"]["code"]
    assert list(guest.workdir.iterdir()) == []


async def test_the_host_runs_commands_over_v1(legacy: LegacyGuest) -> None:
    result = await legacy.execute(["sh", "-c", "echo $A; pwd; echo e >&2; exit 7"], cwd="/", env={"A": "b"})
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"b\n/\n", b"e\n")
    late = await legacy.execute(["sleep", "100"], timeout_s=0.2)
    assert (late.exit_code, late.timed_out, late.truncated) == (124, True, True)
    missing = await legacy.execute(["no-such-command"])
    assert (missing.exit_code, missing.stderr) == (127, b"sbx: command not found: no-such-command\n")


async def test_the_host_reads_and_writes_files_over_v1(legacy: LegacyGuest) -> None:
    content = os.urandom(500_000)
    assert await legacy.write("x/y", content) == len(content)
    assert await legacy.read("x/y") == content
    with pytest.raises(FileMissing):
        await legacy.read("nothing")


@asynccontextmanager
async def old_guest(answer: dict[str, Any], status: str = "200 OK") -> AsyncIterator[LegacyGuest]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Transport(address, None) as transport:
        yield LegacyGuest(transport)


async def test_an_old_guest_that_gives_signals_a_negative_code_is_understood() -> None:
    async with old_guest({"exit_code": -9, "stdout": "", "stderr": "", "encoding": "base64"}) as legacy:
        result = await legacy.execute(["x"])
    assert (result.exit_code, result.signal) == (137, 9)


async def test_an_answer_that_makes_no_sense_is_an_unreachable_guest() -> None:
    for answer in ({}, {"exit_code": "0"}, {"exit_code": 0, "stdout": "!", "stderr": ""}, {"exit_code": True}):
        async with old_guest(answer) as legacy:
            with pytest.raises(GuestUnreachable):
                await legacy.execute(["x"])


async def test_a_refusal_in_the_old_shape_is_shown_in_its_words() -> None:
    async with old_guest({"detail": "cwd is not a directory"}, "400 Bad Request") as legacy:
        with pytest.raises(UsageError, match="cwd is not a directory"):
            await legacy.execute(["x"])
