"""Leases, events, tokens, contexts and outputs, within one process."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sbxtui.core.errors import Conflict, NameTaken, NotFound, TimedOut, UsageError
from sbxtui.core.model import Context, ContextKind, ContextName, EndpointToken, SandboxId
from sbxtui.home import Home
from sbxtui.identity import own_identity
from sbxtui.store import events as event_log
from sbxtui.store.contexts import Contexts
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.store.leases import Leases
from sbxtui.store.outputs import Outputs
from sbxtui.store.registry import Registry
from sbxtui.store.tokens import Tokens, get_or_mint
from tests.store.worker import record

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
ME = str(own_identity())
WORK = Context(ContextName("work"), ContextKind.AWS, region="eu-west-1", profile="dev")


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(home: Home, clock: Clock) -> Store:
    return Store.open(home, clock=clock)


def _token(ports: tuple[int, ...] = (8080,), *, minutes: int = 60, value: str = "jwe-1") -> EndpointToken:
    return EndpointToken(SandboxId("microvm-1"), ports, value, NOW, NOW + timedelta(minutes=minutes))


def test_a_held_lease_is_refused_even_to_its_own_process(timed: Store) -> None:
    leases = Leases(timed)
    assert leases.acquire("runner", "home", owner=ME)
    assert not leases.acquire("runner", "home", owner=ME)
    assert leases.acquire("runner", "other home", owner=ME)


def test_an_expired_lease_is_free_for_the_next(timed: Store, clock: Clock) -> None:
    leases = Leases(timed)
    assert leases.acquire("mint", "x", owner=ME, expires_at=NOW + timedelta(seconds=30))
    clock.now += timedelta(seconds=31)
    assert [lease.key for lease in leases.dead("mint")] == ["x"]
    assert leases.acquire("mint", "x", owner=ME)


def test_a_lease_that_was_taken_meanwhile_is_not_claimed_by_who_saw_it_dead(timed: Store, clock: Clock) -> None:
    leases = Leases(timed)
    leases.acquire("mint", "x", owner=ME, expires_at=NOW + timedelta(seconds=30))
    clock.now += timedelta(seconds=31)
    (dead,) = leases.dead("mint")
    assert leases.acquire("mint", "x", owner=ME, expires_at=clock.now + timedelta(seconds=30))
    assert not leases.claim(dead, "1:1:other-boot")
    assert leases.get("mint", "x") is not None


def test_a_lease_is_released_by_its_owner_only(timed: Store) -> None:
    leases = Leases(timed)
    leases.acquire("mint", "x", owner=ME)
    assert not leases.release("mint", "x", owner="1:1:other-boot")
    assert leases.release("mint", "x", owner=ME)
    assert leases.get("mint", "x") is None


@pytest.mark.parametrize("owner", ["", "nonsense", "1:2", "a:b:c", "1:1:another-boot"])
def test_an_owner_that_is_no_living_process_holds_nothing(timed: Store, owner: str) -> None:
    leases = Leases(timed)
    assert leases.acquire("mint", "x", owner=owner)
    assert [lease.owner for lease in leases.dead("mint")] == [owner]


def test_events_are_read_in_pages_and_by_subject(store: Store) -> None:
    events = Events(store)
    for number in range(25):
        events.record(context="local", kind="test", subject=f"s{number % 2}", actor="me", data={"n": number})
    first = events.list(limit=10)
    second = events.list(first[-1].seq, limit=10)
    assert [event.data["n"] for event in first + second] == list(range(20))
    assert {event.subject for event in events.list(subject="s1", context="local")} == {"s1"}
    assert [event.data["n"] for event in events.tail(3)] == [22, 23, 24]
    assert events.list(context="elsewhere") == []
    assert events.latest_seq() == 25


def test_old_events_are_pruned_and_their_numbers_never_come_back(timed: Store, clock: Clock) -> None:
    events = Events(timed)
    for _ in range(3):
        events.record(context="local", kind="test", subject="x", actor="me")
    clock.now += timedelta(days=31)
    assert events.prune() == 3
    assert events.latest_seq() == 3
    assert events.record(context="local", kind="test", subject="x", actor="me") == 4


def test_only_the_newest_hundred_thousand_events_are_kept(timed: Store) -> None:
    with timed.transaction() as transaction:
        transaction.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO events (at, context, kind, subject, actor, data)"
            " SELECT '2026-06-01T12:00:00.000000+00:00', '', 't', '', '', '{}' FROM n",
            (event_log.MAX_EVENTS + 50,),
        )
    assert Events(timed).prune() == 50
    assert Events(timed).list(limit=1)[0].seq == 51


def test_an_event_of_a_change_that_fails_never_was(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction() as transaction:
        event_log.append(transaction, context="local", kind="test", subject="x", actor="me")
        raise ZeroDivisionError
    assert Events(store).list() == []


@pytest.mark.parametrize(
    ("kept", "wanted", "is_found"),
    [
        ((8080,), (8080,), True),
        ((8080, 3000), (3000,), True),
        ((8080,), (8080, 3000), False),
        ((), (3000,), True),
        ((), (), True),
        ((8080,), (), False),
    ],
)
def test_a_token_serves_the_ports_it_opens(
    timed: Store, kept: tuple[int, ...], wanted: tuple[int, ...], is_found: bool
) -> None:
    tokens = Tokens(timed)
    tokens.put("local", _token(kept))
    assert (tokens.get("local", "microvm-1", wanted) is not None) is is_found
    assert tokens.get("work", "microvm-1", wanted) is None
    assert tokens.get("local", "microvm-2", wanted) is None


def test_a_token_comes_back_as_it_was_put(timed: Store) -> None:
    Tokens(timed).put("local", _token((3000, 8080)))
    assert Tokens(timed).get("local", "microvm-1", (8080,)) == _token((3000, 8080))


def test_a_token_about_to_expire_is_not_given_out(timed: Store, clock: Clock) -> None:
    tokens = Tokens(timed)
    tokens.put("local", _token())
    clock.now = NOW + timedelta(minutes=59, seconds=1)
    assert tokens.get("local", "microvm-1", (8080,)) is None
    tokens.put("local", replace(_token(minutes=1, value="short"), sandbox_id=SandboxId("microvm-2")))
    assert tokens.get("local", "microvm-2", (8080,), now=NOW + timedelta(seconds=30)) is not None
    assert tokens.get("local", "microvm-2", (8080,), now=NOW + timedelta(seconds=50)) is None


def test_dropping_a_refused_token_spares_its_successor(timed: Store) -> None:
    tokens = Tokens(timed)
    tokens.put("local", _token(value="old"))
    tokens.put("local", _token(value="new"))
    tokens.drop("local", _token(value="old"))
    assert tokens.get("local", "microvm-1", (8080,)) == _token(value="new")
    tokens.drop("local", _token(value="new"))
    assert tokens.get("local", "microvm-1", (8080,)) is None


def test_removing_a_sandbox_drops_its_tokens(timed: Store) -> None:
    Registry(timed).adopt("local", "calm-otter", record("microvm-1"), actor="test")
    Tokens(timed).put("local", _token())
    Registry(timed).remove("local", "calm-otter", actor="test")
    assert timed.rows("SELECT * FROM tokens") == []


def test_a_token_never_shows_in_a_repr() -> None:
    assert "jwe-1" not in repr(_token())


async def test_a_failed_mint_is_told_and_lets_the_next_one_try(store: Store) -> None:
    now = store.now()
    token = EndpointToken(SandboxId("microvm-1"), (8080,), "jwe", now, now + timedelta(hours=1))

    async def refuse() -> EndpointToken:
        raise Conflict("suspended")

    async def grant() -> EndpointToken:
        return token

    async with asyncio.timeout(15):
        with pytest.raises(Conflict):
            await get_or_mint(store, "local", SandboxId("microvm-1"), (8080,), owner=ME, mint=refuse)
        assert await get_or_mint(store, "local", SandboxId("microvm-1"), (8080,), owner=ME, mint=grant) == token


async def test_tasks_of_one_process_mint_once_too(store: Store) -> None:
    minted = 0

    async def grant() -> EndpointToken:
        nonlocal minted
        minted += 1
        await asyncio.sleep(0)
        now = store.now()
        return EndpointToken(SandboxId("microvm-1"), (8080,), "jwe", now, now + timedelta(hours=1))

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(get_or_mint(store, "local", SandboxId("microvm-1"), (8080,), owner=ME, mint=grant))
    assert minted == 1


async def test_a_mint_that_never_ends_is_given_up(store: Store) -> None:
    async def hang() -> EndpointToken:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    with pytest.raises(TimedOut, match="microvm-1"):
        await get_or_mint(store, "local", SandboxId("microvm-1"), (8080,), owner=ME, mint=hang, timeout_s=0.05)
    assert Leases(store).list("mint") == []


async def test_a_cancelled_wait_for_the_store_leaves_nobody_waiting_for_a_mint(home: Home) -> None:
    is_asking = threading.Event()

    def clock() -> datetime:
        is_asking.set()
        return NOW

    store = Store.open(home, clock=clock)
    is_asking.clear()
    with contextlib.closing(sqlite3.connect(home.store_file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asking = asyncio.create_task(
            get_or_mint(store, "local", SandboxId("microvm-1"), (8080,), owner=ME, mint=asyncio.Event().wait)  # type: ignore[arg-type]  # never asked
        )
        await asyncio.to_thread(is_asking.wait)
        asking.cancel()
        other.execute("COMMIT")
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.get_running_loop().shutdown_default_executor()
    assert Leases(store).list("mint") == []


def test_local_is_always_there_and_in_use(store: Store) -> None:
    contexts = Contexts(store)
    assert [context.name for context in contexts.list()] == ["local"]
    assert contexts.current().kind is ContextKind.LOCAL
    with pytest.raises(Conflict):
        contexts.remove("local")
    with pytest.raises(NameTaken):
        contexts.add(replace(WORK, name=ContextName("local")))


def test_a_context_is_added_used_and_removed(store: Store) -> None:
    contexts = Contexts(store)
    assert contexts.add(WORK, actor="test") == contexts.get("work")
    contexts.use("work", actor="test")
    assert contexts.current() == WORK
    contexts.remove("work", actor="test")
    assert contexts.current().name == "local"
    with pytest.raises(NotFound):
        contexts.get("work")


def test_an_unknown_context_shows_a_near_one(store: Store) -> None:
    Contexts(store).add(WORK)
    with pytest.raises(NotFound) as caught:
        Contexts(store).use("wrok")
    assert "`work`" in caught.value.hint


@pytest.mark.parametrize("name", ["", "Work", "a b", "x" * 64, "../etc"])
def test_a_context_name_that_cannot_be_is_refused(store: Store, name: str) -> None:
    with pytest.raises(UsageError):
        Contexts(store).add(replace(WORK, name=ContextName(name)))


def test_a_context_with_sandboxes_stays(store: Store) -> None:
    Contexts(store).add(WORK)
    Registry(store).adopt("work", "calm-otter", record("microvm-1"), actor="test")
    with pytest.raises(Conflict, match="calm-otter"):
        Contexts(store).remove("work")


def test_a_context_is_bound_to_one_account(store: Store) -> None:
    contexts = Contexts(store)
    contexts.add(WORK)
    contexts.set_account("work", "123456789012")
    contexts.set_account("work", "123456789012")
    with pytest.raises(Conflict, match="123456789012"):
        contexts.set_account("work", "999999999999")
    assert contexts.get("work").account_id == "123456789012"


def test_outputs_are_set_unset_and_forgotten_with_their_context(store: Store) -> None:
    Contexts(store).add(WORK)
    outputs = Outputs(store)
    outputs.set("work", {"image_arn": "arn:1", "build_bucket": "b"}, source="infra up", actor="test")
    outputs.set("work", {"build_bucket": ""}, source="infra destroy", actor="test")
    assert [(one.name, one.value, one.source) for one in outputs.list("work")] == [("image_arn", "arn:1", "infra up")]
    assert outputs.get("work", "build_bucket") == ""
    Contexts(store).remove("work")
    assert outputs.list("work") == []


def test_transactions_do_not_nest(store: Store) -> None:
    with pytest.raises(RuntimeError, match="nest"), store.transaction(), store.transaction():
        pass
    Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")
