"""A local cloud that is killed, restarted, replaced or not needed any more loses nothing and leaves nothing."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.localcloud.endpoint import Endpoint, run_sandbox, wait_for_state
from tests.support.local_cloud import LocalCloud, local_cloud

IDLE = {"maxIdleDurationSeconds": 3600, "suspendedDurationSeconds": 3600, "autoResumeEnabled": True}


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[LocalCloud]:
    with local_cloud(tmp_path, "--runtime", "process") as started:
        yield started


def hello(endpoint: Endpoint) -> dict[str, Any]:
    headers = {"X-aws-proxy-auth": endpoint.token}
    reply = httpx.get(f"https://{endpoint.address}/v2/hello", headers=headers, verify=endpoint.context(), timeout=20)
    assert reply.status_code == 200, reply
    told: dict[str, Any] = reply.json()
    return told


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


def test_a_taken_port_is_left_alone_and_another_one_told(mortal: LocalCloud) -> None:
    old = mortal.told()["endpoint_url"]
    mortal.stop()
    handler = http.server.BaseHTTPRequestHandler
    with http.server.HTTPServer(("127.0.0.1", int(old.rpartition(":")[2])), handler):
        mortal.start()
        assert mortal.told()["endpoint_url"] != old
        assert mortal.client().list_microvms()["items"] == []


def test_of_many_started_at_once_one_serves_and_the_others_end_well(tmp_path: Path) -> None:
    with local_cloud(tmp_path, "--runtime", "process") as first:
        others = [subprocess.Popen(first.command()) for _ in range(3)]
        assert [other.wait(30) for other in others] == [0, 0, 0]
        assert first.told()["pid"] == (first.process.pid if first.process else 0)
        assert first.client().list_microvms()["items"] == []


def test_it_ends_when_idle_with_no_sandbox_but_not_with_one(tmp_path: Path) -> None:
    with local_cloud(tmp_path, "--runtime", "process", "--exit-when-idle", "0.2") as brief:
        assert brief.process is not None
        # A client in time keeps it, and then its sandbox does.
        sandbox_id = ""
        while not sandbox_id:
            with contextlib.suppress(BotoCoreError, KeyError):
                sandbox_id = brief.client().run_microvm(imageIdentifier=brief.image_arn())["microvmId"]
            if brief.process.poll() is not None:
                brief.start()
        wait_for_state(brief.client(), sandbox_id, "RUNNING")
        with pytest.raises(subprocess.TimeoutExpired):
            brief.process.wait(1)
        brief.client().terminate_microvm(microvmIdentifier=sandbox_id)
        assert brief.process.wait(20) == 0
        assert not brief.cloud_file.exists()
        brief.options = ("--runtime", "process")


def test_draining_refuses_launches_and_ends_with_the_last_sandbox(mortal: LocalCloud) -> None:
    endpoint = run_sandbox(mortal)
    assert mortal.process is not None
    mortal.process.send_signal(signal.SIGUSR1)
    client = endpoint.client
    deadline = time.monotonic() + 10
    with pytest.raises(client.exceptions.InternalServerException, match="draining") as refused:
        while time.monotonic() < deadline:
            # Heard before the signal is.
            with contextlib.suppress(client.exceptions.ResourceNotFoundException):
                client.run_microvm(imageIdentifier="arn:x")
    assert refused.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "5"
    assert client.get_microvm(microvmIdentifier=endpoint.id)["state"] == "RUNNING"
    client.terminate_microvm(microvmIdentifier=endpoint.id)
    assert mortal.process.wait(20) == 0
    mortal.start()


def test_nothing_of_the_callers_aws_settings_reaches_the_process(tmp_path: Path) -> None:
    leaked = {"AWS_ACCESS_KEY_ID": "AKIALEAK", "AWS_PROFILE": "nobody", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    with local_cloud(tmp_path, "--runtime", "process", env=leaked) as started:
        endpoint = run_sandbox(started)
        short = endpoint.id.removeprefix("microvm-").replace("-", "")[:16]
        told = json.loads((started.trees / endpoint.id / "spec.json").read_text())
        assert {name for name in told["env"] if name.startswith("AWS_")} == {
            "AWS_LAMBDA_MICROVM_IMAGE_NAME",
            "AWS_LAMBDA_MICROVM_IMAGE_ARN",
            "AWS_LAMBDA_MICROVM_IMAGE_VERSION",
            "AWS_REGION",
        }
        assert (started.sockets / f"{short}.k").exists()


def test_secrets_are_private_and_never_in_the_log(mortal: LocalCloud) -> None:
    endpoint = run_sandbox(mortal, runHookPayload="payload-secret")
    local = mortal.home / "local"
    for path in (local / "cloud.json", local / "keys.json", local / "ca" / "ca-key.pem", local / "ca" / "endpoint.pem"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert local.stat().st_mode & 0o077 == 0
    log = mortal.log_text()
    assert mortal.told()["secret_access_key"] not in log
    assert endpoint.token not in log
    assert "payload-secret" not in log


@pytest.mark.parametrize("place", ["sockets", "logs", "local"])
def test_a_folder_that_somebody_else_may_have_made_first_is_not_used(tmp_path: Path, place: str) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    trees, sockets = tmp_path / "trees", tmp_path / "sockets"
    cloud = LocalCloud(tmp_path, sockets, trees, ("--runtime", "process"))
    cloud.home.mkdir()
    places = {"sockets": sockets, "logs": tmp_path / "logs", "local": cloud.home / "local"}
    places[place].symlink_to(planted)
    ran = subprocess.run(cloud.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 1
    assert "is not a folder of this user" in ran.stderr
    assert list(planted.iterdir()) == []


def test_a_state_folder_that_cannot_be_written_refuses_launches_and_keeps_what_is(mortal: LocalCloud) -> None:
    endpoint = run_sandbox(mortal, idlePolicy=IDLE)
    records = mortal.home / "local" / "sandboxes"
    aside = records.with_name("aside")
    records.rename(aside)
    records.write_text("in the way")
    client = endpoint.client
    with pytest.raises(client.exceptions.InternalServerException, match="cannot write its state"):
        client.run_microvm(imageIdentifier=mortal.image_arn())
    with pytest.raises(client.exceptions.InternalServerException, match="cannot write its state"):
        client.suspend_microvm(microvmIdentifier=endpoint.id)
    assert [item["state"] for item in client.list_microvms()["items"]] == ["RUNNING"]
    assert hello(endpoint)["sandbox"]["id"] == endpoint.id
    records.unlink()
    aside.rename(records)
    client.suspend_microvm(microvmIdentifier=endpoint.id)
    wait_for_state(client, endpoint.id, "SUSPENDED")


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


def test_conformance_caps_every_sandbox_at_eight_hours(tmp_path: Path) -> None:
    with local_cloud(tmp_path, "--runtime", "process", "--conformance") as strict:
        launched = strict.client().run_microvm(imageIdentifier=strict.image_arn())
        assert launched["maximumDurationInSeconds"] == 28_800
