"""Sandboxes whose clock is wrong, seen by the host: put right where it is their own, else told."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from sbxtui.core.model import Registration
from sbxtui.core.troubles import trouble_words
from sbxtui.services.jobs import Command
from sbxtui.wiring import Services
from tests.support.direct import direct_services, know
from tests.support.guest_process import running_guest
from tests.support.wrong_clock import WrongClock, wrong_clock

ON_THE_PLATFORM = {"AWS_LAMBDA_MICROVM_IMAGE_ARN": "arn:aws:lambda:us-east-1:1:microvm-image:x"}
HOUR_S = 3600


async def told_off_s(services: Services, row: Registration, clock: WrongClock) -> float:
    """What a command in the sandbox takes for the time, against this machine's."""
    before_s = time.time()
    result = await services.jobs.exec(row, Command(["date", "+%s"], env=clock.env))
    return int(result.stdout) - before_s


@pytest.mark.parametrize("may_be_set", [True, False], ids=["its own", "fixed"])
async def test_a_clock_an_hour_behind_is_put_right_or_told(tmp_path: Path, may_be_set: bool) -> None:
    clock = wrong_clock(tmp_path, -HOUR_S)
    env = {**ON_THE_PLATFORM, **clock.env, **({} if may_be_set else {"WRONG_CLOCK_FIXED": "1"})}
    services = direct_services(tmp_path / "here")
    try:
        async with asyncio.timeout(60), running_guest(tmp_path, env=env) as guest:
            row = know(services, guest.url)
            assert await told_off_s(services, row, clock) < 60 - HOUR_S
            # As a face does on the first look after a resume.
            seen = await services.metrics.glance(row)
            assert seen.is_clock_off and seen.clock_was_set is may_be_set
            assert (abs(await told_off_s(services, row, clock)) < 60) is may_be_set
            assert (await services.metrics.glance(row)).is_clock_off is not may_be_set
            words = [said for event in services.events.tail(20) if (said := trouble_words(event))]
            assert len(words) == 1 and "s behind this machine's" in words[0], words
            assert ("was set" in words[0]) is may_be_set
            assert ("certificates" in words[0]) is not may_be_set
            if may_be_set:
                # A later sleep: it is put right again, and told again.
                clock.put(2 * HOUR_S)
                assert (await services.metrics.glance(row)).clock_was_set
                assert abs(clock.ahead_s) < 60
    finally:
        services.close()
