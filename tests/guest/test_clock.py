"""Setting a sandbox's clock: only one of its own. No test touches this machine's."""

from __future__ import annotations

import time

import httpx
import pytest

from sbxguest.clock import set_clock
from sbxguest.state import GuestSettings
from tests.support.guest_process import GuestProcess

ON_THE_PLATFORM = {"AWS_LAMBDA_MICROVM_IMAGE_ARN": "arn:aws:lambda:us-east-1:1:microvm-image:x"}


def test_a_clock_of_its_own_is_set_and_one_that_may_not_be_set_is_told() -> None:
    asked: list[tuple[int, float]] = []
    settings = GuestSettings.from_env(ON_THE_PLATFORM)
    assert set_clock(settings, 1_800_000_000.5, lambda clock, now_s: asked.append((clock, now_s))) is True
    assert asked == [(time.CLOCK_REALTIME, 1_800_000_000.5)]

    def refuse(clock: int, now_s: float) -> None:
        raise PermissionError("CAP_SYS_TIME")

    assert set_clock(settings, 1_800_000_000.5, refuse) is False


@pytest.mark.parametrize("more", [None, {"SBX_ISOLATION": "gVisor"}, {"SBX_LIMITS": "{}"}])
def test_a_clock_that_is_shared_is_never_touched(more: dict[str, str] | None) -> None:
    def touch(clock: int, now_s: float) -> None:
        raise AssertionError("it was")

    assert set_clock(GuestSettings.from_env({} if more is None else ON_THE_PLATFORM | more), 1.0, touch) is False


async def test_a_guest_beside_others_says_that_it_was_not_set(guest: GuestProcess) -> None:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http:
        answer = await http.put("/v2/clock", json={"now_s": time.time()})
        assert (answer.status_code, answer.json()["was_set"]) == (200, False)
        for wrong in (None, -1, True, "now", 1e300):
            assert (await http.put("/v2/clock", json={"now_s": wrong})).status_code == 400
