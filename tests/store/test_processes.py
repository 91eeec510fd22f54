"""Many processes on one store: nothing is lost, nothing is given twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sbxtui.core.model import LaunchRequest, Phase
from sbxtui.home import Home
from sbxtui.identity import identity_of, own_identity
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.store.leases import Leases
from sbxtui.store.registry import Registry
from tests.store.processes import line, result, run_together, start, workers
from tests.store.worker import ARN, record


def _dead_owner() -> str:
    """The identity of a process that has just ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = str(identity_of(process.pid))
    process.communicate()
    return owner


def test_two_thousand_interleaved_changes_by_four_processes_lose_nothing(home: Home) -> None:
    results = run_together(home, [("churn", str(number), "500") for number in range(1, 5)])

    owned: dict[str, str] = {}
    for found in results:
        assert not owned.keys() & found["mine"].keys(), "one name was given twice"
        owned |= found["mine"]
    store = Store.open(home)
    assert {row.name: row.id for row in Registry(store).list("local")} == owned
    counts = {key: sum(found["counts"][key] for found in results) for key in results[0]["counts"]}
    assert sum(counts.values()) == 2_000
    assert counts["refused"] > 0, "the processes never met"
    by_kind = [event.kind for event in Events(store).list(limit=10_000)]
    assert by_kind.count("sandbox.tracked") == counts["created"]
    assert by_kind.count("sandbox.renamed") >= counts["renamed"] - counts["refused"]
    assert by_kind.count("sandbox.removed") == counts["removed"]
    store.close()


@pytest.mark.parametrize("attempt", range(3))
def test_of_two_processes_that_want_one_name_exactly_one_gets_it(home: Home, attempt: int) -> None:
    results = run_together(home, [("reserve", "calm-otter")] * 2)
    assert sorted(found["won"] for found in results) == [False, True]


def test_ten_processes_open_a_fresh_home_fifty_times_at_once(home: Home) -> None:
    results = run_together(home, [("open_five",)] * 10)
    assert [found for five in results for found in five] == [{"names": 0, "notice": False}] * 50


def test_opening_the_store_again_keeps_the_locks_of_whoever_has_it_open_in_this_process(
    home: Home, store: Store
) -> None:
    Store.open(home).close()
    # Without its lock, another process would believe itself alone and take the log away under this one.
    assert run_together(home, [("lock_alone",)]) == [{"alone": False}]
    store.close()
    assert run_together(home, [("lock_alone",)]) == [{"alone": True}]


def test_a_process_killed_inside_a_change_leaves_everything_as_it_was(home: Home, store: Store) -> None:
    registry = Registry(store)
    registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    with workers(home, [("hang_in_transaction", "calm-otter")]) as (victim,):
        start(victim)
        assert line(victim) == "inside"
        victim.send_signal(signal.SIGKILL)
        victim.wait(10)
        assert registry.get("local", "calm-otter").id == "microvm-1"
        registry.rename("local", "calm-otter", "brave-fox", actor="test")
    assert [row.name for row in registry.list()] == ["brave-fox"]


def test_a_dead_launch_is_taken_over_by_one_of_many_recoverers(home: Home, store: Store) -> None:
    registry = Registry(store)
    for name in ("calm-otter", "brave-fox"):
        registry.reserve(
            context="local",
            name=name,
            request=LaunchRequest(ARN),
            client_token=f"token-{name}",
            owner=_dead_owner(),
            actor="test",
        )
    results = run_together(home, [("take_over",)] * 6)
    assert sorted(name for found in results for name in found["taken"]) == ["brave-fox", "calm-otter"]
    assert {row.phase for row in registry.list()} == {Phase.LAUNCHING}


def test_a_launch_of_a_living_process_is_not_dead(store: Store) -> None:
    registry = Registry(store)
    registry.reserve(
        context="local",
        name="calm-otter",
        request=LaunchRequest(ARN),
        client_token="token",
        owner=str(own_identity()),
        actor="test",
    )
    assert registry.dead_launches("local") == []


def test_a_lease_of_a_killed_process_is_dead_and_claimed_once(store: Store) -> None:
    leases = Leases(store)
    assert leases.acquire("ephemeral", "microvm-1", owner=_dead_owner(), data={"name": "calm-otter"})
    (lease,) = leases.dead("ephemeral")
    assert leases.claim(lease, str(own_identity()))
    assert not leases.claim(lease, str(own_identity()))
    assert leases.dead("ephemeral") == []
    assert leases.list("ephemeral")[0].data == {"name": "calm-otter"}


def test_eight_processes_that_need_one_token_mint_it_once(home: Home, tmp_path: Path) -> None:
    mint_log = tmp_path / "mints"
    results = run_together(home, [("mint", str(mint_log))] * 8)
    assert mint_log.read_text() == "minted\n"
    assert len({found["value"] for found in results}) == 1


def test_a_minter_that_dies_is_replaced_by_one_that_waits(home: Home, tmp_path: Path) -> None:
    mint_log = tmp_path / "mints"
    with workers(home, [("mint_and_hang",), ("mint", str(mint_log)), ("mint", str(mint_log))]) as (victim, *waiting):
        start(victim)
        assert line(victim) == "inside"
        for process in waiting:
            start(process)
        victim.send_signal(signal.SIGKILL)
        results = [result(process) for process in waiting]
    assert mint_log.read_text() == "minted\n"
    assert results[0] == results[1]


def test_a_doorbell_wakes_a_listener_in_another_process(home: Home, store: Store) -> None:
    with workers(home, [("listen",)]) as (listener,):
        start(listener)
        assert line(listener) == "inside"
        Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")
        # The listener polls once an hour: only the bell can have woken it.
        assert result(listener) == {"woken": True, "saw": True}
