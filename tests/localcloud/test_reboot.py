"""A sandbox suspended to disk is there again after everything that ran is gone, sockets included."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbxtui.localcloud.keeper_processes import read_process
from sbxtui.localcloud.world import short_key
from tests.localcloud.endpoint import hello, run_sandbox, wait_for_state
from tests.support.local_cloud import LocalCloud, local_cloud, shared_trees
from tests.support.sandboxes import point_to_runsc, require_runtime

IDLE = {"maxIdleDurationSeconds": 3600, "suspendedDurationSeconds": 3600, "autoResumeEnabled": True}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    """A local cloud on gVisor."""
    images = shared_trees() / ".images"
    images.mkdir(mode=0o711, exist_ok=True)
    point_to_runsc(images)
    try:
        require_runtime("gvisor", images)
        with local_cloud(tmp_path, "--runtime", "gvisor", "--exit-when-idle", "0") as started:
            yield started
    finally:
        # Other tests of this run share the folder, and choose for themselves.
        (images / "runsc.json").unlink(missing_ok=True)


def _end_all_processes(cloud: LocalCloud) -> None:
    """What a reboot does to a home: no process is left, and no socket."""
    cloud.stop(signal.SIGKILL)
    for keeper in cloud.sockets.glob("*.k"):
        _kill(_keeper_pid(keeper))
    shutil.rmtree(cloud.sockets)
    cloud.sockets.mkdir(mode=0o700)


def _keeper_pid(keeper_socket: Path) -> int:
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.connect(str(keeper_socket))
        keeper.sendall(b'{"op": "status"}\n')
        return int(json.loads(keeper.makefile().readline())["pid"])


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while (found := read_process(pid)) is not None and found.is_alive:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_every_suspended_sandbox_survives_a_reboot_with_its_files_and_its_identity(cloud: LocalCloud) -> None:
    first, second = (run_sandbox(cloud, idlePolicy=IDLE) for _ in range(2))
    third = run_sandbox(cloud, idlePolicy=IDLE, imageIdentifier=cloud.image_arn(f"sbx-fork-{first.id}"))
    before = {each.id: hello(each) for each in (first, second, third)}
    for sandbox_id in before:
        first.client.suspend_microvm(microvmIdentifier=sandbox_id)
        wait_for_state(first.client, sandbox_id, "SUSPENDED", timeout_s=60)
    _end_all_processes(cloud)
    client = cloud.start().client()
    for each in (first, second, third):
        assert client.get_microvm(microvmIdentifier=each.id)["state"] == "SUSPENDED"
        # The old token, and the resume it causes.
        after, was = hello(each), before[each.id]
        assert (after["sandbox"], after["isolation"]) == (was["sandbox"], was["isolation"])
        assert after["sandbox"]["id"] == each.id
        assert after["boot_id"] == was["boot_id"]


@pytest.mark.slow
def test_one_that_is_ended_after_a_reboot_leaves_nothing(cloud: LocalCloud) -> None:
    sandbox = run_sandbox(cloud, idlePolicy=IDLE)
    sandbox.client.suspend_microvm(microvmIdentifier=sandbox.id)
    wait_for_state(sandbox.client, sandbox.id, "SUSPENDED")
    _end_all_processes(cloud)
    client = cloud.start().client()
    client.terminate_microvm(microvmIdentifier=sandbox.id)
    wait_for_state(client, sandbox.id, "TERMINATED")
    left = {path.name for path in (cloud.trees / sandbox.id).glob("*")}
    assert left <= {"exit.json", "keeper.log"}
    assert not [path for path in cloud.sockets.iterdir() if path.name.startswith(short_key(sandbox.id))]
