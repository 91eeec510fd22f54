"""The life of a sandbox: states, reasons, idle windows, client tokens, and an endpoint that wakes it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from tests.localcloud.endpoint import OK, Endpoint, guest_server, read_answer, run_sandbox, wait_for_state
from tests.support.local_cloud import LocalCloud, local_cloud

# One platform minute is two seconds here.
SCALE = "30"
MINUTE_S = 60 / float(SCALE)


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A local cloud whose lifecycle windows pass 30 times as fast."""
    with local_cloud(tmp_path_factory.mktemp("fast"), "--runtime", "process", "--time-scale", SCALE) as started:
        yield started


def idle(window_s: int, suspended_s: int, *, auto_resume: bool = True) -> dict[str, Any]:
    return {
        "maxIdleDurationSeconds": window_s,
        "suspendedDurationSeconds": suspended_s,
        "autoResumeEnabled": auto_resume,
    }


def get(endpoint: Endpoint, path: str = "/v2/hello", *, port: int = 8080) -> httpx.Response:
    headers = {"X-aws-proxy-auth": endpoint.token, "X-aws-proxy-port": str(port)}
    return httpx.get(f"https://{endpoint.address}{path}", headers=headers, verify=endpoint.context(), timeout=20)


def guest_pid(endpoint: Endpoint) -> int:
    """The guest's first process: of those that belong to the sandbox, the one whose parent does not."""
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _belongs_to(entry, endpoint.id)]
    pids = {entry.name for entry in entries}
    (found,) = [int(e.name) for e in entries if (e / "stat").read_text().rpartition(")")[2].split()[1] not in pids]
    return found


def _belongs_to(process: Path, sandbox_id: str) -> bool:
    try:
        command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
    except OSError:
        return False
    return b"sbxboot.py" in command and sandbox_id.encode() in environment


def test_a_sandbox_runs_suspends_resumes_and_ends(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast, runHookPayload=json.dumps({"v": 1, "name": "otter", "owner": "me", "purpose": "test"}))
    client = endpoint.client
    assert get(endpoint).json()["sandbox"]["name"] == "otter"
    client.suspend_microvm(microvmIdentifier=endpoint.id)
    wait_for_state(client, endpoint.id, "SUSPENDED")
    client.suspend_microvm(microvmIdentifier=endpoint.id)
    client.resume_microvm(microvmIdentifier=endpoint.id)
    wait_for_state(client, endpoint.id, "RUNNING")
    client.resume_microvm(microvmIdentifier=endpoint.id)
    assert get(endpoint).status_code == 200
    client.terminate_microvm(microvmIdentifier=endpoint.id)
    ended = wait_for_state(client, endpoint.id, "TERMINATED")
    assert ended["stateReason"] == "Success."
    assert ended["terminatedAt"] >= ended["startedAt"]
    client.terminate_microvm(microvmIdentifier=endpoint.id)


def test_a_suspended_sandbox_can_be_ended_and_mints_tokens(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast)
    endpoint.client.suspend_microvm(microvmIdentifier=endpoint.id)
    wait_for_state(endpoint.client, endpoint.id, "SUSPENDED")
    assert endpoint.mint([{"port": 8080}])
    endpoint.client.terminate_microvm(microvmIdentifier=endpoint.id)
    assert wait_for_state(endpoint.client, endpoint.id, "TERMINATED")["stateReason"] == "Success."


def test_an_ended_sandbox_refuses_every_transition_and_token(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast)
    client = endpoint.client
    client.terminate_microvm(microvmIdentifier=endpoint.id)
    wait_for_state(client, endpoint.id, "TERMINATED")
    for call in (
        lambda: client.suspend_microvm(microvmIdentifier=endpoint.id),
        lambda: client.resume_microvm(microvmIdentifier=endpoint.id),
        lambda: endpoint.mint([{"port": 1}]),
    ):
        with pytest.raises(client.exceptions.ConflictException, match="TERMINATED"):
            call()
    assert endpoint.id in [item["microvmId"] for item in client.list_microvms()["items"]]
    assert get(endpoint).status_code == 502


def test_the_exit_of_the_main_process_ends_the_sandbox_with_its_code(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast)
    os.kill(guest_pid(endpoint), signal.SIGKILL)
    ended = wait_for_state(endpoint.client, endpoint.id, "TERMINATED")
    assert ended["stateReason"] == "Container Stopped with Exit Code: 137"
    assert get(endpoint).status_code == 502


def test_a_launch_can_be_ended_before_it_runs(fast: LocalCloud) -> None:
    client = fast.client()
    sandbox_id = client.run_microvm(imageIdentifier=fast.image_arn())["microvmId"]
    client.terminate_microvm(microvmIdentifier=sandbox_id)
    assert wait_for_state(client, sandbox_id, "TERMINATED")["stateReason"] == "Success."


def test_a_pending_sandbox_cannot_be_suspended(fast: LocalCloud) -> None:
    client = fast.client()
    sandbox_id = client.run_microvm(imageIdentifier=fast.image_arn())["microvmId"]
    with pytest.raises(client.exceptions.ConflictException):
        client.suspend_microvm(microvmIdentifier=sandbox_id)
    client.terminate_microvm(microvmIdentifier=sandbox_id)


# Client tokens


def test_one_client_token_makes_one_sandbox_however_many_ask_at_once(fast: LocalCloud) -> None:
    barrier = threading.Barrier(4)

    def launch(_: int) -> str:
        client = fast.client()
        barrier.wait(10)
        return str(client.run_microvm(imageIdentifier=fast.image_arn(), clientToken="together")["microvmId"])

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(launch, range(4)))) == 1


def test_a_used_client_token_gives_the_same_sandbox_whatever_its_state(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast, clientToken="again")
    client = endpoint.client
    client.suspend_microvm(microvmIdentifier=endpoint.id)
    wait_for_state(client, endpoint.id, "SUSPENDED")
    again = client.run_microvm(imageIdentifier=fast.image_arn(), clientToken="again")
    assert (again["microvmId"], again["state"]) == (endpoint.id, "SUSPENDED")
    with pytest.raises(client.exceptions.ConflictException) as refused:
        client.run_microvm(imageIdentifier=fast.image_arn(), clientToken="again", maximumDurationInSeconds=60)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 409
    client.terminate_microvm(microvmIdentifier=endpoint.id)


# Time


def test_a_silent_endpoint_suspends_and_a_request_resumes(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast, idlePolicy=idle(60, 3600))
    boot_id = get(endpoint).json()["boot_id"]
    wait_for_state(endpoint.client, endpoint.id, "SUSPENDED")
    assert get(endpoint).json()["boot_id"] == boot_id
    assert endpoint.state() == "RUNNING"
    endpoint.client.terminate_microvm(microvmIdentifier=endpoint.id)


def test_refused_requests_keep_nothing_awake(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast, idlePolicy=idle(60, 3600))
    deadline = time.monotonic() + 20
    with httpx.Client(verify=endpoint.context()) as http:
        while endpoint.state() != "SUSPENDED":
            assert time.monotonic() < deadline
            assert http.get(f"https://{endpoint.address}/healthz").status_code == 403
    assert http.is_closed
    endpoint.client.terminate_microvm(microvmIdentifier=endpoint.id)


def test_without_auto_resume_a_suspended_sandbox_answers_502_and_stays_suspended(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast, idlePolicy=idle(3600, 3600, auto_resume=False))
    endpoint.client.suspend_microvm(microvmIdentifier=endpoint.id)
    wait_for_state(endpoint.client, endpoint.id, "SUSPENDED")
    reply = get(endpoint)
    assert (reply.status_code, reply.content) == (502, b"")
    assert endpoint.state() == "SUSPENDED"
    endpoint.client.terminate_microvm(microvmIdentifier=endpoint.id)


@pytest.mark.parametrize(
    ("policy", "reason"), [(idle(60, 0), "60 s without traffic"), (idle(60, 30), "30 s suspended")]
)
def test_the_idle_policy_ends_a_sandbox_and_says_so(fast: LocalCloud, policy: dict[str, Any], reason: str) -> None:
    endpoint = run_sandbox(fast, idlePolicy=policy)
    ended = wait_for_state(endpoint.client, endpoint.id, "TERMINATED")
    assert ended["stateReason"] == f"Success. Ended after {reason}."


@pytest.mark.slow
def test_the_maximum_duration_ends_a_sandbox_suspended_or_not(fast: LocalCloud) -> None:
    endpoint = run_sandbox(fast, maximumDurationInSeconds=120)
    endpoint.client.suspend_microvm(microvmIdentifier=endpoint.id)
    ended = wait_for_state(endpoint.client, endpoint.id, "TERMINATED", timeout_s=60)
    assert (ended["terminatedAt"] - ended["startedAt"]).total_seconds() >= 120 / float(SCALE)
    assert ended["stateReason"] == "Success. Ended by its maximum duration of 120 s."


@pytest.mark.slow
async def test_one_byte_a_moment_keeps_a_stream_and_its_sandbox_awake(fast: LocalCloud) -> None:
    endpoint = await asyncio.to_thread(run_sandbox, fast, idlePolicy=idle(60, 3600))
    end = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not end.is_set():
            writer.write(b"1\r\n.\r\n")
            await writer.drain()
            await asyncio.sleep(MINUTE_S / 8)

    async with guest_server(drip) as port, asyncio.timeout(40), endpoint.connected() as (reader, writer):
        writer.write(endpoint.head(port))
        await reader.readuntil(b"\r\n\r\n")
        # Two windows' worth of drops.
        for _ in range(16):
            await reader.readuntil(b"1\r\n.\r\n")
        assert await asyncio.to_thread(endpoint.state) == "RUNNING"
        end.set()
    await asyncio.to_thread(endpoint.client.terminate_microvm, microvmIdentifier=endpoint.id)


@pytest.mark.long
async def test_a_silent_stream_does_not_hold_the_sandbox_and_is_cut_by_the_suspend(fast: LocalCloud) -> None:
    endpoint = await asyncio.to_thread(run_sandbox, fast, idlePolicy=idle(60, 3600))

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.read()

    async with guest_server(silent) as port, asyncio.timeout(20), endpoint.connected() as (reader, writer):
        writer.write(endpoint.head(port))
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""
    assert await asyncio.to_thread(endpoint.state) in ("SUSPENDING", "SUSPENDED")
    await asyncio.to_thread(endpoint.client.terminate_microvm, microvmIdentifier=endpoint.id)


async def test_requests_held_over_a_resume_arrive_once_and_byte_exact(fast: LocalCloud) -> None:
    endpoint = await asyncio.to_thread(run_sandbox, fast, idlePolicy=idle(3600, 3600))
    await asyncio.to_thread(endpoint.client.suspend_microvm, microvmIdentifier=endpoint.id)
    await asyncio.to_thread(wait_for_state, endpoint.client, endpoint.id, "SUSPENDED")
    content = os.urandom(2_000_000)
    seen: list[str] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen.append(hashlib.sha256(await reader.readexactly(len(content))).hexdigest())
        writer.write(OK)

    async def post(port: int) -> bytes:
        async with endpoint.connected() as (reader, writer):
            writer.write(endpoint.head(port, "POST / HTTP/1.1", f"Content-Length: {len(content)}") + content)
            await writer.drain()
            return await read_answer(reader)

    async with guest_server(take) as port, asyncio.timeout(30):
        assert await asyncio.gather(*(post(port) for _ in range(5))) == [OK] * 5
    assert seen == [hashlib.sha256(content).hexdigest()] * 5
    await asyncio.to_thread(endpoint.client.terminate_microvm, microvmIdentifier=endpoint.id)


async def test_suspends_in_between_lose_no_request(fast: LocalCloud) -> None:
    endpoint = await asyncio.to_thread(run_sandbox, fast, idlePolicy=idle(3600, 3600))
    async with httpx.AsyncClient(verify=endpoint.context(), timeout=20) as http:
        headers = {"X-aws-proxy-auth": endpoint.token}
        for _ in range(4):
            assert (await http.get(f"https://{endpoint.address}/healthz", headers=headers)).status_code == 200
            await asyncio.to_thread(endpoint.client.suspend_microvm, microvmIdentifier=endpoint.id)
    await asyncio.to_thread(endpoint.client.terminate_microvm, microvmIdentifier=endpoint.id)


@pytest.mark.slow
def test_an_ended_sandbox_is_forgotten_after_a_day(tmp_path: Path) -> None:
    with local_cloud(tmp_path, "--runtime", "process", "--time-scale", "80000", "--exit-when-idle", "0") as quick:
        client = quick.client()
        sandbox_id = client.run_microvm(imageIdentifier=quick.image_arn(), clientToken="t")["microvmId"]
        client.terminate_microvm(microvmIdentifier=sandbox_id)
        deadline = time.monotonic() + 20
        with pytest.raises(ClientError, match="not found"):
            while time.monotonic() < deadline:
                client.get_microvm(microvmIdentifier=sandbox_id)
        assert list((quick.home / "local" / "sandboxes").iterdir()) == []
        assert not (quick.trees / sandbox_id).exists()
        assert client.run_microvm(imageIdentifier=quick.image_arn(), clientToken="t")["microvmId"] != sandbox_id


def test_no_ingress_closes_the_endpoint(fast: LocalCloud) -> None:
    connector = "arn:aws:lambda:local-1:aws:network-connector:aws-network-connector:NO_INGRESS"
    endpoint = run_sandbox(fast, ingressNetworkConnectors=[connector])
    reply = get(endpoint)
    assert (reply.status_code, reply.text) == (403, "Access to port denied")
    endpoint.client.terminate_microvm(microvmIdentifier=endpoint.id)
