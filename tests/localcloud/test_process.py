"""The process itself: one a home, gone when it is not needed, private, and honest about a disk it cannot write."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError

from tests.localcloud.endpoint import hello, run_sandbox, wait_for_state
from tests.support.local_cloud import LocalCloud, local_cloud

IDLE = {"maxIdleDurationSeconds": 3600, "suspendedDurationSeconds": 3600, "autoResumeEnabled": True}


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


@pytest.mark.slow
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


@pytest.mark.long
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


@pytest.mark.long
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


def test_conformance_caps_every_sandbox_at_eight_hours(tmp_path: Path) -> None:
    with local_cloud(tmp_path, "--runtime", "process", "--conformance") as strict:
        launched = strict.client().run_microvm(imageIdentifier=strict.image_arn())
        assert launched["maximumDurationInSeconds"] == 28_800
