"""What is tried again, how often, and how patiently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbxtui.control.retry import FINAL, RETRY_AFTER, RetryPolicy, delay_before_retry
from sbxtui.core.errors import (
    AccessDenied,
    Conflict,
    ControlUnavailable,
    QuotaExceeded,
    SandboxNotFound,
    SbxError,
    Throttled,
    UsageError,
)
from tests.control.planes import HASTY, plane_at, record_answer
from tests.support.aws_server import Reply, aws_server, error

POLICY = RetryPolicy(max_attempts=4, first_delay_s=1, max_delay_s=8)


def _delay(found: SbxError, attempts: int = 1, *, luck: float = 0.5) -> float | None:
    return delay_before_retry(found, attempts, POLICY, choose=lambda: luck)


@pytest.mark.parametrize("kind", [ControlUnavailable, Throttled])
def test_what_may_pass_is_tried_again(kind: type[SbxError]) -> None:
    assert _delay(kind("x")) is not None


@pytest.mark.parametrize("kind", [QuotaExceeded, AccessDenied, Conflict, SandboxNotFound, UsageError, SbxError])
def test_what_would_only_come_again_is_not(kind: type[SbxError]) -> None:
    assert _delay(kind("x")) is None


def test_a_final_failure_is_not_tried_again() -> None:
    assert _delay(ControlUnavailable("untrusted certificate", details={FINAL: True})) is None


def test_delays_double_and_end_after_the_last_attempt() -> None:
    delays = [_delay(ControlUnavailable("x"), attempts, luck=0.999999) for attempts in (1, 2, 3, 4)]
    assert delays[:3] == pytest.approx([1, 2, 4], rel=1e-3)
    assert delays[3] is None


def test_a_server_that_asks_for_patience_gets_it() -> None:
    assert _delay(Throttled("x", details={RETRY_AFTER: 5})) == 5
    assert _delay(Throttled("x", details={RETRY_AFTER: 0}), luck=0.0) == 0.5


def test_a_server_that_asks_for_too_much_patience_is_left_to_the_caller() -> None:
    assert _delay(Throttled("x", details={RETRY_AFTER: 60})) is None


@given(st.integers(1, 3), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_longer_than_the_policy_allows(attempts: int, luck: float) -> None:
    delay_s = _delay(ControlUnavailable("x"), attempts, luck=luck)
    assert delay_s is not None
    assert 0 < delay_s <= POLICY.max_delay_s


@pytest.mark.parametrize(
    ("reply", "asked"),
    [
        (Reply(502, "<html>bad gateway</html>", {"Content-Type": "text/html"}), 4),
        (Reply(503, ""), 4),
        (error(500, "InternalServerException", "x"), 4),
        (error(429, "ThrottlingException", "x"), 4),
        (Reply(429, {"message": "x"}, {"x-amzn-ErrorType": "ThrottlingException", "Retry-After": "0"}), 4),
        (Reply(429, {"message": "x"}, {"x-amzn-ErrorType": "ThrottlingException", "Retry-After": "3600"}), 1),
        (error(402, "ServiceQuotaExceededException", "x"), 1),
        (Reply(402, "payment required"), 1),
        (error(403, "AccessDeniedException", "x"), 1),
        (error(400, "ValidationException", "x"), 1),
        (error(409, "ConflictException", "x"), 1),
        (error(404, "ResourceNotFoundException", "x"), 1),
        (Reply(404, "<html>not found</html>"), 1),
        (Reply(418, "teapot"), 1),
    ],
    ids=lambda value: f"{value.status} {dict(value.headers)}" if isinstance(value, Reply) else str(value),
)
async def test_a_failing_call_is_made_as_often_as_can_help(reply: Reply, asked: int) -> None:
    with aws_server(reply) as server:
        with pytest.raises(SbxError):
            await plane_at(server, retries=HASTY).get("microvm-1")
        assert len(server.asked) == asked


async def test_a_call_succeeds_once_the_trouble_has_passed() -> None:
    throttled = error(429, "ThrottlingException", "x")
    with aws_server(throttled, Reply(502, ""), throttled, Reply(200, record_answer())) as server:
        assert (await plane_at(server, retries=HASTY).get("microvm-1")).id == "microvm-1"
