"""The platform's hooks, called on a real guest in every order, and by callers that mean no good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.guest_process import GuestProcess, running_guest

PREFIX = "/aws/lambda-microvms/runtime/v1/"
PAYLOAD = {"v": 1, "name": "box", "owner": "ann", "purpose": "tests"}
RUN = {"microvmId": "microvm-1", "runHookPayload": json.dumps(PAYLOAD)}


@pytest.fixture
async def hooked(tmp_path: Path) -> AsyncIterator[GuestProcess]:
    async with running_guest(tmp_path, has_hooks=True) as process:
        yield process


@pytest.fixture
async def platform(hooked: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{hooked.hook_port}{PREFIX}", timeout=30) as client:
        yield client


@pytest.fixture
async def caller(hooked: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=hooked.url, timeout=30) as client:
        yield client


async def identity(caller: httpx.AsyncClient) -> dict[str, Any]:
    sandbox: dict[str, Any] = (await caller.get("/v2/hello")).json()["sandbox"]
    return sandbox


async def test_the_whole_life_of_a_machine_is_answered_with_200(platform: httpx.AsyncClient) -> None:
    order = ["ready", "validate", "run", "suspend", "resume", "suspend", "resume", "terminate"]
    answers = [await platform.post(name, json=RUN if name == "run" else None) for name in order]
    assert [(name, answer.status_code) for name, answer in zip(order, answers, strict=True)] == [
        (name, 200) for name in order
    ]


async def test_every_hook_may_be_repeated(platform: httpx.AsyncClient) -> None:
    for name in ("ready", "validate", "run", "suspend", "resume", "terminate"):
        for _ in range(3):
            assert (await platform.post(name, json=RUN if name == "run" else None)).status_code == 200


async def test_requests_wait_for_run_and_health_never(platform: httpx.AsyncClient, caller: httpx.AsyncClient) -> None:
    assert (await caller.get("/healthz")).status_code == 200
    for answer in (await caller.get("/v2/hello"), await caller.put("/v2/files?path=f", content=b"x")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    await platform.post("run", json=RUN)
    assert (await caller.get("/v2/hello")).status_code == 200


async def test_the_first_run_names_the_machine_and_nobody_renames_it(
    platform: httpx.AsyncClient, caller: httpx.AsyncClient
) -> None:
    assert (await platform.post("run", json=RUN)).status_code == 200
    boot_id = (await caller.get("/v2/hello")).json()["boot_id"]
    other = {"microvmId": "microvm-2", "runHookPayload": json.dumps({**PAYLOAD, "owner": "eve"})}
    assert (await platform.post("run", json=other)).status_code == 200
    assert await identity(caller) == {"id": "microvm-1", "name": "box", "owner": "ann", "purpose": "tests"}
    assert (await caller.get("/v2/hello")).json()["boot_id"] == boot_id


async def test_the_identity_outlives_the_server(
    hooked: GuestProcess, platform: httpx.AsyncClient, caller: httpx.AsyncClient
) -> None:
    await platform.post("run", json=RUN)
    boot_id = (await caller.get("/v2/hello")).json()["boot_id"]
    await hooked.kill_server()
    async with httpx.AsyncClient(base_url=hooked.url, timeout=30) as again:
        assert (await identity(again))["owner"] == "ann"
        assert (await again.get("/v2/hello")).json()["boot_id"] == boot_id


PAYLOADS: list[tuple[object, dict[str, str]]] = [
    (None, {}),
    ({"microvmId": "microvm-9"}, {"id": "microvm-9"}),
    ({"runHookPayload": "not json"}, {}),
    ({"runHookPayload": "[1]"}, {}),
    ({"runHookPayload": "[" * 10_000}, {}),
    ({"runHookPayload": {"name": "as an object"}}, {"name": "as an object"}),
    ({"runHookPayload": json.dumps({"name": 7, "owner": "x" * 300, "purpose": "kept"})}, {"purpose": "kept"}),
    ({"microvmId": ["x"], "runHookPayload": ""}, {}),
]


@pytest.mark.parametrize(("body", "expected"), PAYLOADS)
async def test_any_payload_starts_the_machine_and_only_ours_names_it(
    platform: httpx.AsyncClient, caller: httpx.AsyncClient, body: object, expected: dict[str, str]
) -> None:
    assert (await platform.post("run", json=body) if body else await platform.post("run")).status_code == 200
    assert await identity(caller) == {"id": "", "name": "", "owner": "", "purpose": "", **expected}


async def test_garbage_gets_a_4xx_and_the_listener_lives_on(hooked: GuestProcess, platform: httpx.AsyncClient) -> None:
    bad = [
        await platform.post("run", content=b"\xff{"),
        await platform.post("run", json=[1]),
        await platform.post("run", content=b"x" * 200_000),
        await platform.get("run"),
        await platform.post("nothing"),
        await platform.post("run/../ready/x"),
        await platform.request("BREW", "ready"),
    ]
    assert all(400 <= answer.status_code < 500 for answer in bad)
    for noise in (b"\x16\x03\x01\x02\x00", b"\0" * 5_000, b"POST /", b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n"):
        _, writer = await asyncio.open_connection("127.0.0.1", hooked.hook_port)
        writer.write(noise)
        writer.close()
    assert (await platform.post("ready")).status_code == 200


async def test_a_suspend_waits_for_a_command_that_runs_within_one_call(
    platform: httpx.AsyncClient, caller: httpx.AsyncClient, hooked: GuestProcess
) -> None:
    await platform.post("run", json=RUN)
    go_on = hooked.workdir / "go-on"
    script = f"touch started; while [ ! -e '{go_on}' ]; do sleep 0.02; done; echo done"
    call = asyncio.create_task(caller.post("/v1/exec", json={"command": "sh", "args": ["-c", script]}))
    async with asyncio.timeout(10):
        while not (hooked.workdir / "started").exists():
            await asyncio.sleep(0.01)
    suspend = asyncio.create_task(platform.post("suspend"))
    assert (await platform.post("ready")).status_code == 200
    assert not suspend.done()
    go_on.touch()
    assert (await suspend).status_code == 200
    assert (await call).json()["exit_code"] == 0


async def test_a_suspend_does_not_wait_longer_than_the_platform_would(tmp_path: Path) -> None:
    env = {"SBX_SUSPEND_TIMEOUT_S": "1"}
    async with (
        running_guest(tmp_path, env=env, has_hooks=True) as guest,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{guest.hook_port}{PREFIX}", timeout=30) as platform,
        httpx.AsyncClient(base_url=guest.url, timeout=60) as caller,
    ):
        await platform.post("run", json=RUN)
        call = asyncio.create_task(caller.post("/v1/exec", json={"command": "sleep", "args": ["1000"], "timeout": 600}))
        async with asyncio.timeout(10):
            while not (await caller.get("/v2/jobs")).json()["jobs"]:
                await asyncio.sleep(0.01)
            assert (await platform.post("suspend")).status_code == 200
        assert not call.done()
        call.cancel()


async def test_a_guest_that_cannot_write_its_work_folder_fails_validation(
    hooked: GuestProcess, platform: httpx.AsyncClient
) -> None:
    hooked.workdir.rmdir()
    assert (await platform.post("ready")).status_code == 503
    answer = await platform.post("validate")
    assert answer.status_code == 500 and "self-test" in answer.json()["error"]["message"]
    hooked.workdir.mkdir()
    assert (await platform.post("ready")).status_code == 200


async def test_validation_leaves_nothing_behind(
    hooked: GuestProcess, platform: httpx.AsyncClient, caller: httpx.AsyncClient
) -> None:
    await platform.post("validate")
    await platform.post("run", json=RUN)
    assert list(hooked.workdir.iterdir()) == []
    assert (await caller.get("/v2/jobs")).json() == {"jobs": []}
    # Nor is its log about commands that nobody of it began.
    assert "echo sbx" not in (await caller.get("/v2/logs")).text
