"""Quotas, rates, ceilings and lag, by a clock of the test's own; then all at once on a conformant local cloud."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sbxtui.localcloud.account import BUILDS_CODE, SIZES, Account
from sbxtui.localcloud.ceilings import Allowance, ceiling_of
from sbxtui.localcloud.faults import Fault
from sbxtui.localcloud.history import Lagging
from tests.support.local_cloud import local_cloud


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(Fault) as fault:
        call()
    return fault.value.body.status, fault.value.body.members.get("quotaCode", "")


@pytest.mark.parametrize(
    ("size", "operation", "burst", "code"),
    [
        ("standard", "RunMicrovm", 5, "L-535CA9B6"),
        ("fresh", "RunMicrovm", 1, "L-535CA9B6"),
        ("standard", "SuspendMicrovm", 2, "L-90045317"),
        ("standard", "ResumeMicrovm", 5, "L-118C44B3"),
        ("standard", "TerminateMicrovm", 10, "L-74787B8A"),
        ("standard", "CreateMicrovmAuthToken", 50, "L-7712260B"),
        ("standard", "CreateMicrovmShellAuthToken", 5, "L-B78D2ECC"),
        ("standard", "GetMicrovm", 100, "L-CE98C9E3"),
        ("small-region", "ListMicrovms", 20, ""),
    ],
)
def test_calls_come_in_a_burst_and_then_at_their_rate(size: str, operation: str, burst: int, code: str) -> None:
    clock = Clock()
    account = Account(SIZES[size], clock)
    for _ in range(burst):
        account.take_call(operation)
    assert refused(lambda: account.take_call(operation)) == (429, code)
    account.take_call("CreateMicrovmImage")
    clock.now += 1 / SIZES[size].rates[operation].per_s
    account.take_call(operation)
    assert refused(lambda: account.take_call(operation)) == (429, code)


def test_an_account_is_full_at_four_times_the_memory_of_its_sandboxes() -> None:
    fresh = Account(SIZES["fresh"])
    fresh.check_memory(0, 2048)
    assert refused(lambda: fresh.check_memory(2048, 512)) == (402, "L-CD1C0CC4")
    assert refused(lambda: Account(SIZES["small-region"]).check_count(5, "builds", BUILDS_CODE)) == (402, BUILDS_CODE)
    unlimited = Account(None)
    unlimited.check_memory(1 << 40, 1)
    unlimited.check_count(10**6, "images", "")


async def test_an_endpoint_carries_what_its_size_may() -> None:
    clock = Clock()
    small = Allowance(ceiling_of(512), clock)
    assert [small.open_connection() for _ in range(17)].count(True) == 16
    assert [small.take_request() for _ in range(11)].count(True) == 10
    clock.now += 0.1
    assert small.take_request()
    assert ceiling_of(8192).requests_per_s == 160
    await small.take_bytes(1_000_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await small.take_bytes(10_000_000)


def test_what_is_shown_lags_behind_what_is(record_of: Callable[..., Any]) -> None:
    clock = Clock()
    lagging = Lagging(5, clock)
    first, second = record_of(state="RUNNING"), record_of(state="TERMINATED")
    lagging.note(first)
    clock.now += 10
    lagging.note(second)
    assert lagging.shown(second) is first
    clock.now += 5
    assert lagging.shown(second) is second
    lagging.forget_all_but([])
    assert lagging.shown(first) is first


@pytest.fixture
def record_of() -> Callable[..., Any]:
    from dataclasses import make_dataclass

    return make_dataclass("Seen", [("state", str), ("id", str, "one")])


def test_a_conformant_local_cloud_has_limits_lags_and_says_so(tmp_path: Any) -> None:
    options = ("--runtime", "process", "--conformance", "--account-size", "fresh", "--lag", "600")
    with local_cloud(tmp_path, *options) as cloud:
        client = cloud.client()
        told = cloud.told()
        assert (told["mode"], told["account_size"], told["has_ceilings"]) == ("conformance", "fresh", True)
        launched = client.run_microvm(imageIdentifier=cloud.image_arn())
        assert launched["maximumDurationInSeconds"] == 28_800
        with pytest.raises(client.exceptions.ThrottlingException) as many:
            for _ in range(3):
                client.run_microvm(imageIdentifier=cloud.image_arn())
        assert many.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1"
        client.terminate_microvm(microvmIdentifier=launched["microvmId"])
        assert client.get_microvm(microvmIdentifier=launched["microvmId"])["state"] == "PENDING"
        cloud.options = ("--runtime", "process")
        cloud.restart()
