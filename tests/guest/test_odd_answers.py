"""What a guest may say that no job can be: read as something harmless, never an error of ours."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sbxtui.guest.jobs import decode_exit, decode_job


@pytest.mark.parametrize("told", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "soon", None, 7])
def test_an_instant_outside_of_time_is_long_ago(told: object) -> None:
    job = decode_job({"id": "j", "created_at": told}, "boot")
    assert job.created_at == datetime.fromtimestamp(0, UTC)


@pytest.mark.parametrize("told", [10**400, -1, float("nan"), float("inf"), "long"])
def test_a_duration_that_cannot_be_is_none(told: object) -> None:
    assert decode_exit({"code": 0, "duration_s": told}).duration_s == 0


def test_numbers_no_exit_has_are_left_out() -> None:
    ending = decode_exit({"code": 10**400, "signal": 10**400})
    assert (ending.code, ending.signal) == (None, 0)
