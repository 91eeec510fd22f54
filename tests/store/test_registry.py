"""Names: taken before a launch, bound after it, found by people, and never given twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbxtui.core.errors import AmbiguousReference, Conflict, NameTaken, SandboxNotFound, UsageError
from sbxtui.core.model import IdlePolicy, LaunchRequest, Phase, Registration
from sbxtui.identity import own_identity
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.store.registry import Registry
from tests.store.worker import ARN, record

REQUEST = LaunchRequest(
    image_arn=ARN,
    image_version="3.0",
    execution_role_arn="arn:aws:iam::123456789012:role/sandbox",
    idle=IdlePolicy(max_idle_s=120, suspended_s=3_600, auto_resume=False),
    max_duration_s=7_200,
    ingress_connectors=("in-1", "in-2"),
    egress_connectors=("out",),
    payload='{"v":1,"name":"ünïcode \\ud83d"}',
    log_group="/sbx",
)


@pytest.fixture
def registry(store: Store) -> Registry:
    return Registry(store)


def _reserve(registry: Registry, name: str | None, *, context: str = "local", token: str = "token") -> Registration:
    return registry.reserve(
        context=context,
        name=name,
        request=REQUEST,
        client_token=token,
        owner=str(own_identity()),
        labels={"team": "red"},
        actor="test",
        facts={"launch": {"env": {"KEY": "private"}}},
    )


def test_a_reserved_row_replays_to_the_letter(registry: Registry) -> None:
    reserved = _reserve(registry, "calm-otter")
    assert reserved.phase is Phase.LAUNCHING
    assert registry.get("local", "calm-otter") == reserved
    assert registry.get("local", "calm-otter").request == REQUEST


def test_a_name_is_made_up_when_none_is_given(registry: Registry) -> None:
    names = {_reserve(registry, None).name for _ in range(30)}
    assert len(names) == 30


def test_a_taken_name_is_refused_and_the_first_owner_keeps_it(registry: Registry) -> None:
    first = _reserve(registry, "calm-otter")
    with pytest.raises(NameTaken) as caught:
        _reserve(registry, "calm-otter", token="other")
    assert "--replace" in caught.value.hint
    assert registry.list("local") == [first]


def test_two_contexts_may_use_one_name(registry: Registry) -> None:
    _reserve(registry, "calm-otter")
    _reserve(registry, "calm-otter", context="work")
    assert [row.context for row in registry.list()] == ["local", "work"]
    assert [row.context for row in registry.list("work")] == ["work"]


@pytest.mark.parametrize("name", ["", "Otter", "-otter", "a" * 64, "exec", "otter.1", "otter\n", "'; DROP TABLE meta"])
def test_a_name_that_cannot_be_is_refused_before_anything_is_written(registry: Registry, name: str) -> None:
    with pytest.raises(UsageError):
        _reserve(registry, name)
    assert registry.list() == []


def test_binding_fills_in_the_sandbox_and_is_repeatable(registry: Registry, store: Store) -> None:
    _reserve(registry, "calm-otter")
    bound = registry.bind("local", "calm-otter", record("microvm-1"), actor="test", facts={"memory_mib": 2048})
    assert (bound.id, bound.phase, bound.endpoint) == ("microvm-1", Phase.TRACKED, "127.0.0.1:4000")
    assert bound.facts["memory_mib"] == 2048
    seq = Events(store).latest_seq()
    assert registry.bind("local", "calm-otter", record("microvm-1"), actor="recoverer") == bound
    assert Events(store).latest_seq() == seq


def test_a_launch_whose_name_was_removed_is_told_at_binding(registry: Registry) -> None:
    _reserve(registry, "calm-otter", token="mine")
    registry.remove("local", "calm-otter", actor="somebody")
    with pytest.raises(SandboxNotFound, match="microvm-1"):
        registry.bind("local", "calm-otter", record("microvm-1"), actor="test")


def test_a_launch_never_binds_to_a_name_that_was_reserved_anew(registry: Registry) -> None:
    _reserve(registry, "calm-otter", token="mine")
    registry.remove("local", "calm-otter", actor="somebody")
    _reserve(registry, "calm-otter", token="theirs")
    with pytest.raises(SandboxNotFound):
        registry.bind("local", "calm-otter", record("microvm-1"), actor="test", client_token="mine")
    assert registry.get("local", "calm-otter").id == ""


def test_a_bound_name_never_changes_its_sandbox(registry: Registry) -> None:
    _reserve(registry, "calm-otter")
    registry.bind("local", "calm-otter", record("microvm-1"), actor="test")
    with pytest.raises(Conflict, match="microvm-1"):
        registry.bind("local", "calm-otter", record("microvm-2"), actor="test")


def test_one_sandbox_has_one_name(registry: Registry) -> None:
    registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    with pytest.raises(Conflict, match="calm-otter"):
        registry.adopt("local", "brave-fox", record("microvm-1"), actor="test")
    _reserve(registry, "late-lynx")
    with pytest.raises(Conflict, match="calm-otter"):
        registry.bind("local", "late-lynx", record("microvm-1"), actor="test")


def test_an_adopted_sandbox_is_as_old_as_it_is(registry: Registry) -> None:
    adopted = registry.adopt("local", None, record("microvm-1"), actor="test")
    assert adopted.created_at == record("microvm-1").started_at
    assert adopted.request.image_arn == ARN


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("box", "box"),
        ("box-2", "box-2"),
        ("microvm-aaa1", "box"),
        ("microvm-b", "box-2"),
        ("cal", "calm-otter"),
        ("microvm-aaa2", "calm-otter"),
    ],
)
def test_a_person_finds_by_name_id_or_unique_prefix(registry: Registry, reference: str, name: str) -> None:
    for known, sandbox_id in (("box", "microvm-aaa1"), ("box-2", "microvm-bbb1"), ("calm-otter", "microvm-aaa2")):
        registry.adopt("local", known, record(sandbox_id), actor="test")
    assert registry.find("local", reference).name == name


def test_a_prefix_that_fits_several_lists_them(registry: Registry) -> None:
    for number in range(7):
        registry.adopt("local", f"box-{number}", record(f"microvm-{number}"), actor="test")
    with pytest.raises(AmbiguousReference) as caught:
        registry.find("local", "box")
    assert "and 2 more" in caught.value.message
    assert caught.value.details["names"] == [f"box-{number}" for number in range(7)]


def test_an_unknown_name_shows_near_ones(registry: Registry) -> None:
    registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    with pytest.raises(SandboxNotFound) as caught:
        registry.find("local", "clam-otter")
    assert "`calm-otter`" in caught.value.hint


@pytest.mark.parametrize("reference", ["", "\x1b[31mred", "%", "_"])
def test_a_reference_that_names_nothing_finds_nothing(registry: Registry, reference: str) -> None:
    registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    with pytest.raises(SandboxNotFound) as caught:
        registry.find("local", reference)
    assert "\x1b" not in caught.value.message


def test_another_context_is_not_searched(registry: Registry) -> None:
    registry.adopt("work", "calm-otter", record("microvm-1"), actor="test")
    with pytest.raises(SandboxNotFound):
        registry.find("local", "calm-otter")


def test_renaming_keeps_everything_but_the_name(registry: Registry) -> None:
    before = registry.adopt("local", "calm-otter", record("microvm-1"), labels={"a": "b"}, actor="test")
    registry.rename("local", "calm-otter", "brave-fox", actor="test")
    assert registry.list("local") == [replace(before, name="brave-fox")]


def test_renaming_to_a_taken_name_changes_nothing(registry: Registry) -> None:
    registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    registry.adopt("local", "brave-fox", record("microvm-2"), actor="test")
    with pytest.raises(NameTaken):
        registry.rename("local", "calm-otter", "brave-fox", actor="test")
    assert registry.get("local", "calm-otter").id == "microvm-1"


def test_a_sandbox_being_launched_keeps_its_name(registry: Registry) -> None:
    _reserve(registry, "calm-otter")
    with pytest.raises(Conflict, match="launched"):
        registry.rename("local", "calm-otter", "brave-fox", actor="test")


def test_a_removed_name_is_free_again(registry: Registry) -> None:
    _reserve(registry, "calm-otter")
    registry.remove("local", "calm-otter", actor="test", reason="refused")
    assert _reserve(registry, "calm-otter", token="new").client_token == "new"


def test_removing_what_is_not_there_says_so(registry: Registry) -> None:
    with pytest.raises(SandboxNotFound):
        registry.remove("local", "calm-otter", actor="test")


def test_labels_are_replaced_or_changed_one_by_one(registry: Registry) -> None:
    registry.adopt("local", "calm-otter", record("microvm-1"), labels={"a": "1", "b": "2"}, actor="test")
    assert registry.change_labels("local", "calm-otter", {"b": None, "c": "3"}, actor="test").labels == {
        "a": "1",
        "c": "3",
    }
    assert registry.set_labels("local", "calm-otter", {"d": "4"}, actor="test").labels == {"d": "4"}


def test_facts_are_replaced_or_changed_one_by_one(registry: Registry) -> None:
    registry.adopt("local", "calm-otter", record("microvm-1"), facts={"a": 1, "b": [2]}, actor="test")
    assert registry.change_facts("local", "calm-otter", {"a": None, "c": None, "d": {"e": 1}}).facts == {
        "b": [2],
        "d": {"e": 1},
    }
    assert registry.set_facts("local", "calm-otter", {"f": None}).facts == {"f": None}


def test_facts_that_are_no_json_or_too_large_are_refused(registry: Registry) -> None:
    registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    for value in (object(), float("nan"), "x" * 70_000):
        with pytest.raises((ValueError, UsageError), match=r"JSON|in sum|compliant"):
            registry.set_facts("local", "calm-otter", {"bad": value})
    assert registry.get("local", "calm-otter").facts == {}


def test_events_tell_who_did_what_and_keep_private_values_out(registry: Registry, store: Store) -> None:
    _reserve(registry, "calm-otter")
    registry.bind("local", "calm-otter", record("microvm-1"), actor="mcp:claude")
    registry.set_facts("local", "calm-otter", {"password": "hunter2"}, actor="cli")
    registry.rename("local", "calm-otter", "brave-fox", actor="tui")
    registry.remove("local", "brave-fox", actor="cli", reason="done")
    events = Events(store).list()
    assert [(event.kind, event.actor) for event in events] == [
        ("sandbox.reserved", "test"),
        ("sandbox.tracked", "mcp:claude"),
        ("sandbox.facts", "cli"),
        ("sandbox.renamed", "tui"),
        ("sandbox.removed", "cli"),
    ]
    assert "hunter2" not in repr(events)
    assert "private" not in repr(events)


def test_what_many_processes_saw_is_noted_once(registry: Registry, store: Store) -> None:
    row = registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    for _ in range(3):
        noted = registry.note(row, {"ended": "it did"}, kind="sandbox.ended", notes=[{"reason": "it did"}], actor="x")
    assert noted.facts["ended"] == "it did"
    assert [event.kind for event in Events(store).list()].count("sandbox.ended") == 1


def test_what_was_seen_of_a_removed_sandbox_is_not_noted_of_its_successor(registry: Registry, store: Store) -> None:
    row = registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    registry.remove("local", "calm-otter", actor="test")
    registry.adopt("local", "calm-otter", record("microvm-2"), actor="test")
    registry.note(row, {"ended": "it did"}, kind="sandbox.ended", notes=[{}], actor="x")
    assert "ended" not in registry.get("local", "calm-otter").facts
    assert [event.kind for event in Events(store).list()].count("sandbox.ended") == 0
