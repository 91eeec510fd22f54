"""Books of what a sandbox did, what becomes of it by itself, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from sbxtui.core.life import CAP_TOLD, LIVED, Lived, bill_of, cap_warning, first_end_words, life_of, money_words
from sbxtui.core.model import Context, ContextKind, ContextName, IdlePolicy, SandboxState
from sbxtui.core.pricing import Usage, cost_of, longest_s, prices_of
from tests.support.fake_services import job, now, sandbox

AWS = Context(ContextName("acme"), ContextKind.AWS, region="us-east-1")
BEGAN = now() - timedelta(hours=1)
IDLE = IdlePolicy(max_idle_s=900, suspended_s=3600)


def at(minutes: float) -> datetime:
    return BEGAN + timedelta(minutes=minutes)


def test_what_was_seen_makes_the_times_and_survives_being_written_down() -> None:
    lived = Lived.of({}, BEGAN)
    assert lived.seen(SandboxState.RUNNING, at(5)) is lived and lived.seen(SandboxState.UNKNOWN, at(5)) is lived
    asleep = lived.seen(SandboxState.SUSPENDED, at(10))
    awake = asleep.seen(SandboxState.RUNNING, at(40))
    assert Lived.of({LIVED: awake.as_fact()}, BEGAN) == replace(
        awake, since=Lived.of({LIVED: awake.as_fact()}, BEGAN).since
    )
    assert awake.usage(at(60), scale=1) == Usage(30 * 60, 30 * 60, suspends=1, resumes=1)
    over = awake.seen(SandboxState.TERMINATED, at(50))
    assert over.usage(at(600), scale=2) == Usage(2 * 20 * 60, 2 * 30 * 60, suspends=1, resumes=1)


@pytest.mark.parametrize("damaged", [None, {}, {"state": "x"}, {"state": "RUNNING", "since": "never"}, 7])
def test_damaged_books_are_those_of_one_that_always_ran(damaged: object) -> None:
    assert Lived.of({LIVED: damaged}, BEGAN) == Lived(SandboxState.RUNNING, BEGAN)


def test_what_becomes_of_it_by_itself_follows_its_state_and_its_jobs() -> None:
    one = sandbox("api", created_at=BEGAN, idle=IDLE, max_duration_s=7200)
    ended = replace(job("api", "make", id="j1"), sandbox_id=one.id, created_at=at(20))
    life = life_of(one, [ended])
    assert (life.suspends_at, life.ends_at, life.deleted_at) == (at(35), at(120), None)
    assert life_of(one, [], scale=2).ends_at == at(60)
    slept = Lived(SandboxState.SUSPENDED, at(30)).as_fact()
    asleep = replace(one, state=SandboxState.SUSPENDED, facts={**one.facts, LIVED: slept})
    assert life_of(asleep, []).suspends_at is None
    deleted_at = life_of(asleep, []).deleted_at
    assert deleted_at is not None and abs(deleted_at - at(90)) < timedelta(seconds=1)
    assert life_of(replace(one, state=SandboxState.TERMINATED), []).ends_at is None
    assert life_of(sandbox("b", created_at=BEGAN), []).suspends_at is None


def test_the_cap_is_told_fifteen_and_five_minutes_ahead_and_each_once() -> None:
    one = sandbox("api", created_at=BEGAN, max_duration_s=7200)
    life = life_of(one, [])
    assert cap_warning(life, one, at(100), 1) is None
    first = cap_warning(life, one, at(106), 1)
    assert first is not None and first[0] == 15 and "sbx cp -r api:/work ." in str(first[1]["hint"])
    told = replace(one, facts={CAP_TOLD: 15})
    assert cap_warning(life, told, at(107), 1) is None
    last = cap_warning(life, told, at(116), 1)
    assert last is not None and last[0] == 5
    assert cap_warning(life, replace(one, facts={CAP_TOLD: 5}), at(118), 1) is None
    # One who looks late says only what is still true.
    late = cap_warning(life, one, at(117), 1)
    assert late is not None and late[0] == 5


def test_a_bill_adds_running_sleeping_and_snapshots_and_says_what_is_a_guess() -> None:
    prices = prices_of("us-east-1", 2048)
    cost = cost_of(prices, Usage(3600, 3600, 1, 1), SandboxState.RUNNING, left_s=1800)
    expected = prices.running_h + prices.suspended_h + prices.suspend + 2 * prices.resume
    assert cost.so_far == pytest.approx(expected) and cost.is_estimate
    assert cost.at_cap == pytest.approx(expected + prices.running_h / 2)
    # Measured: suspending and resuming 0.919 GB costs about half a cent.
    assert 0.002 < prices.suspend + prices.resume < 0.006
    assert prices_of("eu-north-1", 2048).is_estimate and prices_of("eu-north-1", 2048).running_h > prices.running_h
    assert not bill_of(AWS, sandbox("api", created_at=BEGAN), (), at(30)).cost.is_estimate
    assert bill_of(AWS, sandbox("api", created_at=BEGAN, facts={}), (), at(30)).cost.is_estimate


@pytest.mark.parametrize("last", [SandboxState.RUNNING, SandboxState.SUSPENDED])
def test_what_nobody_can_ask_goes_on_costing_what_it_did_when_it_was_last_seen(last: SandboxState) -> None:
    seen = sandbox("api", created_at=BEGAN, state=last, facts={LIVED: Lived(last, BEGAN).as_fact(), "memory_mib": 2048})
    cost = bill_of(AWS, seen, [], now()).cost
    lost = bill_of(AWS, replace(seen, state=SandboxState.UNKNOWN), [], now()).cost
    assert lost.per_hour == cost.per_hour > 0 and lost.is_estimate


def test_a_budget_is_never_exceeded_even_flat_out() -> None:
    prices = prices_of("us-east-1", 8192)
    paid_s = longest_s(prices, 1.0)
    assert paid_s / 3600 * prices.worst_h + prices.resume <= 1.0 < (paid_s + 2) / 3600 * prices.worst_h + prices.resume
    assert longest_s(prices, 0.0) == 0


def test_what_was_spent_is_added_up_and_of_what_costs_nothing_what_aws_would_charge() -> None:
    ran = sandbox("api", created_at=BEGAN)
    assert money_words(AWS, [ran, replace(ran, name="")], at(60)) == money_words(AWS, [ran], at(60)) == ["$0.13 so far"]
    napped = replace(ran, facts={**ran.facts, LIVED: Lived(SandboxState.RUNNING, at(60), suspends=1).as_fact()})
    assert money_words(AWS, [ran, napped], at(120))[0].startswith("about $0.3")
    assert money_words(AWS, [], at(60)) == []
    local = replace(AWS, kind=ContextKind.LOCAL)
    assert money_words(local, [ran], at(60)) == ["on AWS ~$0.13/h, ~$0.13 so far", "on AWS ~$0.13 so far"]
    assert money_words(local, [ran], at(0.1)) == ["on AWS ~$0.13/h, <$0.01 so far", "on AWS <$0.01 so far"]


def test_what_ends_first_is_told_by_its_name() -> None:
    short = sandbox("api", created_at=BEGAN, max_duration_s=3600)
    asleep = replace(short, name="nap", state=SandboxState.SUSPENDED, idle=IdlePolicy(60, 600))
    asleep = replace(asleep, facts={LIVED: Lived(SandboxState.SUSPENDED, at(5.5)).as_fact()})
    assert first_end_words([sandbox("web", created_at=BEGAN), short], at(10)) == "api ends in 50m"
    assert first_end_words([short, asleep], at(10)) == "nap ends in 5m"
    assert first_end_words([replace(short, name=""), sandbox("web", created_at=BEGAN)], at(10)) == ""
