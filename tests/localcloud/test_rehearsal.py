"""Faults on purpose, each as boto3 or a client of an endpoint meets it, and gone once they are taken away."""

from __future__ import annotations

import http.client
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from sbxtui.localcloud.rehearsal.rules import Kind, RuleBook
from tests.localcloud.endpoint import Endpoint, answer_ok, guest_server, run_sandbox, wait_for_state
from tests.localcloud.signed import send
from tests.support.local_cloud import LocalCloud

FAULTS = "/sbx/v1/faults"


@pytest.fixture(autouse=True)
def _no_fault_is_left(cloud: LocalCloud) -> Iterator[None]:
    yield
    assert send(cloud, "DELETE", FAULTS).status == 200


def add(cloud: LocalCloud, kind: str, operation: str = "*", **more: Any) -> dict[str, Any]:
    reply = send(cloud, "PUT", FAULTS, json.dumps({"kind": kind, "operation": operation, **more}).encode())
    assert reply.status == 200, reply
    made: dict[str, Any] = json.loads(reply.body)
    return made


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("error-500", 500, "InternalServerException"),
        ("html-502", 502, "502"),
        ("throttle-429", 429, "ThrottlingException"),
        ("quota-402", 402, "ServiceQuotaExceededException"),
        ("disk-full", 500, "InternalServerException"),
    ],
)
def test_a_call_goes_wrong_until_the_fault_is_gone_and_no_other_does(
    cloud: LocalCloud, kind: str, status: int, code: str
) -> None:
    client = cloud.client()
    made = add(cloud, kind, "ListMicrovmImages")
    client.list_managed_microvm_images()
    with pytest.raises(ClientError) as refused:
        client.list_microvm_images()
    error = refused.value.response
    assert (error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"]) == (status, code)
    assert send(cloud, "DELETE", f"{FAULTS}/{made['id']}").status == 200
    client.list_microvm_images()


def test_a_fault_comes_as_often_as_was_asked_for(cloud: LocalCloud) -> None:
    made = add(cloud, "error-500", "ListMicrovmImages", times=1)
    assert [send(cloud, "GET", "/2025-09-09/microvm-images").status for _ in range(2)] == [500, 200]
    (listed,) = json.loads(send(cloud, "GET", FAULTS).body)["faults"]
    assert (listed["id"], listed["fired"], listed["left"]) == (made["id"], 1, 0)


def test_an_answer_is_cut_and_a_clock_is_off(cloud: LocalCloud) -> None:
    client = cloud.client()
    add(cloud, "drop", "ListMicrovmImages", amount=20)
    # Raw, for boto3 takes an answer that was cut for an empty one.
    with pytest.raises(http.client.IncompleteRead) as cut:
        send(cloud, "GET", "/2025-09-09/microvm-images")
    assert len(cut.value.partial) == 20
    made = add(cloud, "clock-jump", amount=3600)
    with pytest.raises(ClientError, match="Signature expired"):
        client.list_microvm_images()
    # Faults are asked for and taken away by the real time, or a clock that is off would stay so.
    assert send(cloud, "DELETE", f"{FAULTS}/{made['id']}").status == 200
    client.list_microvm_images()


async def test_an_endpoint_refuses_drops_and_forgets_tokens(cloud: LocalCloud, endpoint: Endpoint) -> None:
    async with guest_server(answer_ok) as port:
        for kind, status in (("throttle-429", b"429"), ("token-expiry", b"403"), ("html-502", b"502")):
            add(cloud, kind, "endpoint", times=1)
            assert (await endpoint.ask(endpoint.head(port))).split(b" ")[1] == status
        add(cloud, "drop", "endpoint", amount=10, times=1)
        assert await endpoint.ask(endpoint.head(port)) == b"HTTP/1.1 2"
        add(cloud, "latency", "endpoint", amount=1)
        assert (await endpoint.ask(endpoint.head(port))).endswith(b"ok")


def test_a_resume_is_slow_and_a_guest_is_killed(cloud: LocalCloud) -> None:
    sandbox = run_sandbox(cloud)
    sandbox.client.suspend_microvm(microvmIdentifier=sandbox.id)
    wait_for_state(sandbox.client, sandbox.id, "SUSPENDED")
    made = add(cloud, "slow-resume", amount=0.1)
    sandbox.client.resume_microvm(microvmIdentifier=sandbox.id)
    wait_for_state(sandbox.client, sandbox.id, "RUNNING")
    assert [one["fired"] for one in json.loads(send(cloud, "GET", FAULTS).body)["faults"]] == [1]
    assert send(cloud, "DELETE", f"{FAULTS}/{made['id']}").status == 200
    add(cloud, "kill-guest", "GetMicrovm", times=1)
    sandbox.client.get_microvm(microvmIdentifier=sandbox.id)
    ended = wait_for_state(sandbox.client, sandbox.id, "TERMINATED")
    assert ended["stateReason"].startswith("Container Stopped with Exit Code: "), ended
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"https://{sandbox.address}/", verify=sandbox.context(), timeout=5).raise_for_status()


def test_a_sandbox_whose_disk_is_full_ends_who_writes_on(cloud: LocalCloud, endpoint: Endpoint) -> None:
    add(cloud, "disk-full", "endpoint", times=1)
    job = {"id": str(uuid.uuid4()), "argv": ["sh", "-c", "head -c 8000000 /dev/zero > more; exec sleep 100"]}
    headers = {"X-aws-proxy-auth": endpoint.token}
    with httpx.Client(base_url=f"https://{endpoint.address}", verify=endpoint.context(), headers=headers) as http:
        assert http.post("/v2/jobs", json=job, timeout=20).status_code == 201
        deadline = time.monotonic() + 60
        while "disk" not in (seen := endpoint.client.get_microvm(microvmIdentifier=endpoint.id)).get("stateReason", ""):
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)
        assert (seen["state"], http.get("/healthz").status_code) == ("RUNNING", 200)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "", {"kind": "nonsense"}),
        ("PUT", "", {"kind": "latency", "rate": 2}),
        ("PUT", "", {"kind": "latency", "rate": True}),
        ("PUT", "", {"kind": "latency", "operation": "a b"}),
        ("PUT", "", {"kind": "clock-jump", "operation": "RunMicrovm", "amount": 60}),
        ("PUT", "", {"kind": "clock-jump", "amount": 60, "times": 2}),
        ("PUT", "", {"kind": "clock-jump", "amount": 60, "rate": 0.5}),
        ("PUT", "", []),
        ("DELETE", "/none", None),
        ("POST", "", {}),
    ],
)
def test_a_fault_that_cannot_be_is_refused(cloud: LocalCloud, method: str, path: str, body: Any) -> None:
    assert send(cloud, method, FAULTS + path, json.dumps(body).encode()).status in (400, 404)


def test_the_same_seed_chooses_the_same_calls() -> None:
    def chosen(seed: int) -> list[bool]:
        book = RuleBook()
        book.add(Kind.ERROR, "Get*", rate=0.3, seed=seed, amount=0, times=0)
        return [any(book.firing("GetMicrovm", Kind.ERROR)) for _ in range(200)]

    assert chosen(7) == chosen(7) != chosen(8)
    assert 30 < sum(chosen(7)) < 90
