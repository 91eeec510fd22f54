"""The index of jobs: found by a prefix, ended once, and never a reason to keep rows for ever."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from sbxtui.core.errors import AmbiguousReference, NotFound
from sbxtui.core.jobs import Job, JobExit, JobState
from sbxtui.core.model import ContextName, SandboxId
from sbxtui.store import jobs as index_module
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.store.jobs import JobIndex, as_told, prune
from sbxtui.store.registry import Registry
from tests.store.worker import record


@pytest.fixture
def index(store: Store) -> JobIndex:
    registry = Registry(store)
    for number in (1, 2):
        registry.adopt("local", f"box-{number}", record(f"microvm-{number}"), actor="test")
    return JobIndex(store)


def _job(job_id: str, sandbox_id: str = "microvm-1", **changes: object) -> Job:
    made = Job(
        context=ContextName("local"),
        sandbox_id=SandboxId(sandbox_id),
        id=job_id,
        boot_id="boot",
        command="make --token=secret all",
        actor="cli:you",
        created_at=datetime.now(UTC),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]  # fields by name


def test_a_job_is_found_by_its_id_or_a_prefix_in_whichever_sandbox_it_runs(index: JobIndex) -> None:
    index.started(_job("abc1"))
    index.started(_job("abd2", "microvm-2"))
    assert index.find("local", "abc1").sandbox == "box-1"
    assert index.find("local", "abd").sandbox == "box-2"
    with pytest.raises(AmbiguousReference, match="2 jobs: `abc1` in `box-1`, `abd2` in `box-2`"):
        index.find("local", "ab")
    assert index.find("local", "ab", "microvm-2").id == "abd2"
    for missing in ("", "zz", "abc12"):
        with pytest.raises(NotFound):
            index.find("local", missing)


def test_a_whole_id_counts_before_the_prefixes_of_others(index: JobIndex) -> None:
    index.started(_job("abc"))
    index.started(_job("abcd"))
    assert index.find("local", "abc").id == "abc"


def test_a_renamed_sandbox_keeps_its_jobs_and_a_removed_one_loses_them(index: JobIndex, store: Store) -> None:
    index.started(_job("j"))
    Registry(store).rename("local", "box-1", "other", actor="test")
    assert index.find("local", "j").sandbox == "other"
    Registry(store).remove("local", "other", actor="test")
    assert index.list("local") == []


def test_only_the_first_to_see_an_end_makes_an_event_and_no_event_holds_the_commands_words(
    index: JobIndex, store: Store
) -> None:
    job = _job("j")
    for _ in range(2):
        index.started(job)
        index.ended(job, JobExit(3, duration_s=1.5), actor="tui:you")
    found = index.find("local", "j")
    assert (found.state, found.exit) == (JobState.EXITED, JobExit(3, duration_s=1.5))
    events = [event for event in Events(store).list() if event.kind.startswith("job.")]
    assert [(event.kind, event.actor, event.subject) for event in events] == [
        ("job.start", "cli:you", "box-1"),
        ("job.exit", "tui:you", "box-1"),
    ]
    assert "secret" not in str([event.data for event in events])


def test_an_end_of_a_job_that_nobody_noted_is_noted(index: JobIndex) -> None:
    index.ended(_job("j"), JobExit(None, signal=15), actor="cli:you")
    found = index.find("local", "j").exit
    assert found is not None
    assert found.exit_code == 143


def test_old_rows_surplus_rows_and_rows_of_nothing_are_pruned(
    index: JobIndex, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MAX_ROWS", 3)
    now = datetime.now(UTC)
    index.started(_job("old", created_at=now - timedelta(days=31)))
    index.started(_job("gone", "microvm-9"))
    for number in range(5):
        index.started(_job(f"j{number}", created_at=now - timedelta(minutes=5 - number)))
    with store.transaction() as transaction:
        prune(transaction)
    assert [job.id for job in index.list("local")] == ["j3", "j4"]
    assert store.rows("SELECT count(*) FROM jobs") == [(2,)]


def test_what_a_guest_says_of_a_job_nobody_here_began_is_marked_as_its_word(index: JobIndex, store: Store) -> None:
    now = datetime.now(UTC)
    forged = [
        _job("ahead", actor="cli:boss", sandbox="box-1", created_at=now + timedelta(days=3650)),
        _job("ancient", actor="cli:boss", sandbox="box-1", created_at=now - timedelta(days=3650), exit=JobExit(0)),
    ]
    index.caught_up(forged, actor="cli:you")
    with store.transaction() as transaction:
        prune(transaction)
    index.caught_up(forged, actor="cli:you")
    starts = [event for event in Events(store).list() if event.kind == "job.start"]
    assert [event.actor for event in starts] == ["guest:box-1"] * 2
    kept = {job.id: job for job in index.list("local")}
    assert kept["ahead"].created_at <= datetime.now(UTC)
    assert kept["ancient"].exit is not None


@pytest.mark.long
def test_what_a_guest_makes_up_makes_few_events_and_never_drives_out_those_of_others(
    index: JobIndex, store: Store
) -> None:
    index.started(_job("ours"))
    for look in range(40):
        index.caught_up([_job(f"{look}-{number}", exit=JobExit(0)) for number in range(3)], actor="tui:you")
        made_up = [_job(f"{look}.{number}") for number in range(50)]
        index.caught_up(made_up, actor="tui:you")
        index.caught_up([dataclasses.replace(job, exit=JobExit(0)) for job in made_up], actor="tui:you")
        index.caught_up([], [as_told(job) for job in made_up], actor="tui:you")
    index.caught_up([_job("ours", exit=JobExit(0))], actor="tui:you")
    events = [event for event in Events(store).list(limit=10_000) if event.kind.startswith("job.")]
    assert len(events) <= 102
    assert [(event.kind, event.actor) for event in events if event.actor != "guest:microvm-1"] == [
        ("job.start", "cli:you"),
        ("job.exit", "tui:you"),
    ]
    assert 50 in [event.data.get("jobs") for event in events if event.kind == "job.told"]


def test_a_sandbox_has_its_share_of_rows_and_what_runs_stays_longest(
    index: JobIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "MAX_ROWS_EACH", 3)
    index.started(_job("other", "microvm-2"))
    index.started(_job("runs"))
    for number in range(5):
        index.caught_up([_job(f"j{number}", exit=JobExit(0))], actor="cli:you")
    assert {job.id for job in index.list("local")} == {"other", "runs", "j3", "j4"}
