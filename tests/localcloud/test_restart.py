"""A local cloud that is killed, restarted or replaced loses nothing."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.localcloud.endpoint import Endpoint, hello, run_sandbox, wait_for_state
from tests.support.local_cloud import LocalCloud
from tests.support.sandboxes import processes_naming

pytestmark = pytest.mark.long

IDLE = {"maxIdleDurationSeconds": 3600, "suspendedDurationSeconds": 3600, "autoResumeEnabled": True}


def test_a_kill_loses_neither_sandboxes_nor_tokens_nor_the_port(mortal: LocalCloud) -> None:
    running = run_sandbox(mortal, idlePolicy=IDLE, clientToken="one")
    suspended = run_sandbox(mortal, idlePolicy=IDLE)
    suspended.client.suspend_microvm(microvmIdentifier=suspended.id)
    wait_for_state(suspended.client, suspended.id, "SUSPENDED")
    told, boots = mortal.told(), hello(running)["boot_id"]
    mortal.restart(signal.SIGKILL)
    again = mortal.told()
    assert {name for name in told if told[name] != again[name]} == {"pid", "start_ticks"}
    client = mortal.client()
    assert wait_for_state(client, running.id, "RUNNING")["endpoint"] == running.address
    assert client.get_microvm(microvmIdentifier=suspended.id)["state"] == "SUSPENDED"
    assert hello(running)["boot_id"] == boots
    assert (
        client.run_microvm(imageIdentifier=mortal.image_arn(), idlePolicy=IDLE, clientToken="one")["microvmId"]
        == running.id
    )
    # The old token, and the resume it causes.
    assert hello(suspended)["sandbox"]["id"] == suspended.id
    assert client.get_microvm(microvmIdentifier=suspended.id)["state"] == "RUNNING"


def test_the_first_requests_after_a_kill_find_what_runs_and_what_sleeps(
    halted: tuple[LocalCloud, Endpoint],
) -> None:
    cloud, endpoint = halted
    tell_keeper(cloud, endpoint, "freeze")
    with ThreadPoolExecutor(8) as pool:
        # From before it listens: each asks until it is heard, and the first answer must be the right one.
        asked = [pool.submit(_first_answer, endpoint) for _ in range(8)]
        cloud.start()
        state = cloud.client().get_microvm(microvmIdentifier=endpoint.id)["state"]
        assert [answer.result(30) for answer in asked] == [200] * 8
    # Frozen, by a process that could not write it down; or resumed meanwhile.
    assert state in ("SUSPENDED", "RUNNING")


def _first_answer(endpoint: Endpoint) -> int:
    url, headers = f"https://{endpoint.address}/v2/hello", {"X-aws-proxy-auth": endpoint.token}
    context, deadline = endpoint.context(), time.monotonic() + 20
    while True:
        assert time.monotonic() < deadline
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(url, headers=headers, verify=context, timeout=20).status_code


def test_sigterm_leaves_sandboxes_running_and_removes_cloud_json(mortal: LocalCloud) -> None:
    endpoint = run_sandbox(mortal)
    assert mortal.stop(signal.SIGTERM) == 0
    assert not mortal.cloud_file.exists()
    mortal.start()
    assert hello(endpoint)["sandbox"]["id"] == endpoint.id


def test_a_launch_that_was_cut_by_a_kill_is_finished(mortal: LocalCloud) -> None:
    client = mortal.client()
    params = {"imageIdentifier": mortal.image_arn(), "clientToken": "cut"}
    sandbox_id = client.run_microvm(**params)["microvmId"]
    assert client.get_microvm(microvmIdentifier=sandbox_id)["state"] == "PENDING"
    mortal.restart(signal.SIGKILL)
    client = mortal.client()
    assert client.run_microvm(**params)["microvmId"] == sandbox_id
    wait_for_state(client, sandbox_id, "RUNNING")


# What a crash between two steps leaves: the record's state, what the keeper does, and where it must end.
CRASH_POINTS = {
    "run hook answered, RUNNING not written": ("PENDING", "thaw", "RUNNING"),
    "SUSPENDING written, hook not called": ("SUSPENDING", "thaw", "SUSPENDED"),
    "frozen, SUSPENDED not written": ("SUSPENDING", "freeze", "SUSPENDED"),
    "frozen by a process that was killed": ("RUNNING", "freeze", "SUSPENDED"),
    "SUSPENDED written": ("SUSPENDED", "freeze", "SUSPENDED"),
    "thawed, RUNNING not written": ("SUSPENDED", "thaw", "RUNNING"),
    "TERMINATING written, nothing done": ("TERMINATING", "thaw", "TERMINATED"),
    "TERMINATING written while suspended": ("TERMINATING", "freeze", "TERMINATED"),
    "ended, TERMINATED not written": ("TERMINATING", "terminate", "TERMINATED"),
    "ended while RUNNING": ("RUNNING", "terminate", "TERMINATED"),
    "ended while SUSPENDED": ("SUSPENDED", "terminate", "TERMINATED"),
}


def test_a_crash_between_any_two_steps_is_finished_by_the_next_process(mortal: LocalCloud) -> None:
    with ThreadPoolExecutor(4) as pool:
        launched = pool.map(lambda _: run_sandbox(mortal, idlePolicy=IDLE), CRASH_POINTS)
        endpoints = dict(zip(CRASH_POINTS, launched, strict=True))
    mortal.stop(signal.SIGKILL)
    for point, (state, keeper_does, _) in CRASH_POINTS.items():
        path = mortal.home / "local" / "sandboxes" / f"{endpoints[point].id}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"state": state}))
        tell_keeper(mortal, endpoints[point], keeper_does)
    mortal.start()
    client = mortal.client()
    found = {
        point: wait_for_state(client, endpoints[point].id, end)["state"] for point, (*_, end) in CRASH_POINTS.items()
    }
    assert found == {point: end for point, (*_, end) in CRASH_POINTS.items()}
    for point in (point for point, end in found.items() if end == "RUNNING"):
        assert hello(endpoints[point])["sandbox"]["id"] == endpoints[point].id


def test_a_record_without_a_keeper_is_launched(halted: tuple[LocalCloud, Endpoint]) -> None:
    """The crash came after the record was written and before its keeper was started."""
    cloud, endpoint = halted
    old = cloud.home / "local" / "sandboxes" / f"{endpoint.id}.json"
    raw = json.loads(old.read_text())
    new_id = "microvm-11111111-2222-3333-4444-555555555555"
    new = raw | {"id": new_id, "state": "PENDING", "token_key": "new", "endpoint_port": raw["endpoint_port"] + 1}
    old.with_name(f"{new_id}.json").write_text(json.dumps(new))
    cloud.start()
    wait_for_state(cloud.client(), new_id, "RUNNING")


@pytest.fixture
def halted(mortal: LocalCloud) -> tuple[LocalCloud, Endpoint]:
    """A sandbox that runs while its local cloud does not."""
    endpoint = run_sandbox(mortal, idlePolicy=IDLE)
    mortal.stop(signal.SIGKILL)
    return mortal, endpoint


def tell_keeper(cloud: LocalCloud, endpoint: Endpoint, operation: str) -> None:
    short = endpoint.id.removeprefix("microvm-").replace("-", "")[:16]
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.connect(str(cloud.sockets / f"{short}.k"))
        keeper.sendall(json.dumps({"op": operation, "grace_s": 0}).encode() + b"\n")
        assert "error" not in json.loads(keeper.makefile().readline())


@pytest.mark.slow
@pytest.mark.parametrize("delay_ms", [0, 20, 60, 120, 250, 500, 1000])
def test_kills_during_a_launch_make_exactly_one_sandbox(mortal: LocalCloud, delay_ms: int) -> None:
    params = {"imageIdentifier": mortal.image_arn(), "clientToken": "token"}
    client = mortal.client()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.run_microvm, **params)
        time.sleep(delay_ms / 1000)  # where the kill strikes is the case, nothing is waited for
        mortal.restart(signal.SIGKILL)
        with contextlib.suppress(BotoCoreError, ClientError):
            asked.result(20)
    client = mortal.client()
    sandbox_id = client.run_microvm(**params)["microvmId"]
    wait_for_state(client, sandbox_id, "RUNNING")
    assert [item["microvmId"] for item in client.list_microvms()["items"]] == [sandbox_id]


@pytest.mark.slow
@pytest.mark.parametrize("delay_ms", [0, 10, 30, 60, 120])
@pytest.mark.parametrize(("operation", "state"), [("suspend", "SUSPENDED"), ("terminate", "TERMINATED")])
def test_a_transition_cut_by_a_kill_is_finished_or_never_begun(
    mortal: LocalCloud, operation: str, state: str, delay_ms: int
) -> None:
    endpoint = run_sandbox(mortal, idlePolicy=IDLE)
    call = getattr(endpoint.client, f"{operation}_microvm")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, microvmIdentifier=endpoint.id)
        time.sleep(delay_ms / 1000)  # where the kill strikes is the case, nothing is waited for
        mortal.restart(signal.SIGKILL)
        with contextlib.suppress(BotoCoreError, ClientError):
            asked.result(20)
    client = mortal.client()
    record = json.loads((mortal.home / "local" / "sandboxes" / f"{endpoint.id}.json").read_text())
    if record["state"] != "RUNNING":
        wait_for_state(client, endpoint.id, state)
    getattr(client, f"{operation}_microvm")(microvmIdentifier=endpoint.id)
    wait_for_state(client, endpoint.id, state)


def test_a_sandbox_that_ended_while_nobody_watched_tells_how(mortal: LocalCloud) -> None:
    endpoint = run_sandbox(mortal)
    mortal.stop(signal.SIGKILL)
    tell_keeper(mortal, endpoint, "terminate")
    mortal.start()
    ended = wait_for_state(mortal.client(), endpoint.id, "TERMINATED")
    assert ended["stateReason"].startswith("Container Stopped with Exit Code: ")


def test_a_damaged_record_is_kept_aside_and_the_rest_goes_on(mortal: LocalCloud) -> None:
    endpoint = run_sandbox(mortal)
    mortal.stop()
    (mortal.home / "local" / "sandboxes" / "microvm-broken.json").write_text('{"id": "microvm-broken"}')
    mortal.start()
    assert [item["microvmId"] for item in mortal.client().list_microvms()["items"]] == [endpoint.id]
    assert (mortal.home / "local" / "sandboxes" / "microvm-broken.damaged").exists()
    assert "microvm-broken.json is damaged" in mortal.log_text()


def test_a_sandbox_that_lives_without_a_readable_record_is_listed_and_can_be_ended(mortal: LocalCloud) -> None:
    endpoints = [run_sandbox(mortal) for _ in range(4)]
    mortal.stop(signal.SIGKILL)
    files = [mortal.home / "local" / "sandboxes" / f"{endpoint.id}.json" for endpoint in endpoints]
    cut, odd, lost, bare = files
    cut.write_text(cut.read_text()[:100])
    fields = json.loads(odd.read_text())
    odd.write_text(json.dumps({key: fields[key] for key in fields if key != "started_at"} | {"later": 1}))
    lost.unlink()
    bare.unlink()
    (mortal.trees / bare.stem / "spec.json").write_text("{")
    mortal.start()
    client = mortal.client()
    for endpoint in endpoints:
        assert wait_for_state(client, endpoint.id, "RUNNING")["stateReason"].startswith("The record of this sandbox")
    assert hello(endpoints[1])["sandbox"]["id"] == endpoints[1].id
    ports = [client.get_microvm(microvmIdentifier=endpoint.id)["endpoint"] for endpoint in endpoints]
    mortal.restart(signal.SIGKILL)
    client = mortal.client()
    assert [client.get_microvm(microvmIdentifier=endpoint.id)["endpoint"] for endpoint in endpoints] == ports
    for endpoint in endpoints:
        client.terminate_microvm(microvmIdentifier=endpoint.id)
        wait_for_state(client, endpoint.id, "TERMINATED")
        assert processes_naming(endpoint.id) == []


def test_an_endpoint_whose_port_was_taken_comes_back_when_it_is_free(mortal: LocalCloud) -> None:
    endpoint = run_sandbox(mortal)
    mortal.stop(signal.SIGKILL)
    with socket.create_server(("127.0.0.1", endpoint.port)):
        mortal.start()
        assert mortal.client().get_microvm(microvmIdentifier=endpoint.id)["endpoint"] == endpoint.address
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(httpx.TransportError):
            assert hello(endpoint)["sandbox"]["id"] == endpoint.id
            return
        assert time.monotonic() < deadline
