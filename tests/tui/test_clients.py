"""The agents that are connected: what each does is seen, and a person has a hand on each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from sbxtui.core.clients import Allowed, Answer
from sbxtui.identity import own_identity
from sbxtui.settings import Settings, Ui
from sbxtui.store.clients import Clients
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.tui.clientlines import head_of
from sbxtui.tui.screens.clients import ClientsScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from tests.support.fake_services import FakeCloud, home_at, sandbox
from tests.tui.acting import key_of_action
from tests.tui.driving import Driver, dashboard

AGENT, OTHER = "mcp:agent#7", "mcp:other#8"


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    """Two agents that this very process serves."""
    with opened(tmp_path) as found:
        found.connected(AGENT, "agent", str(own_identity()))
        found.connected(OTHER, "ot\x1b[31mher\u202e", str(own_identity()), Allowed.ASKING)
        yield found


@contextmanager
def opened(root: Path) -> Iterator[Clients]:
    store = Store.open(home_at(root))
    try:
        yield Clients(store)
    finally:
        store.close()


def spend(root: Path) -> None:
    """Something else that the dashboard tells."""
    store = Store.open(home_at(root))
    try:
        Events(store).record(
            context="local", kind="budget.spent", subject="api", actor="runner", data={"budget_usd": 1}
        )
    finally:
        store.close()


def is_allowed(clients: Clients, allowed: Allowed) -> bool:
    return clients.allowed(OTHER) is allowed


def lines(driver: Driver) -> int:
    return len(driver.app.screen.lines) if isinstance(driver.app.screen, ClientsScreen) else -1


async def test_a_person_sees_each_agent_answers_for_it_and_has_it_wait_or_ends_it(
    tmp_path: Path, clients: Clients
) -> None:
    approvals = clients.approvals
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")]), size=(120, 30)) as driver:
        asked = [
            approvals.ask(OTHER, str(own_identity()), "sandbox_remove", f"name={name}", wait_s=3_600)
            for name in ("api", "web")
        ]
        await driver.until(lambda: any("asks for sandbox_remove" in told for told in driver.toasts()))
        await driver.press(key_of_action("clients"))
        await driver.until(lambda: lines(driver) == 4)
        clients.called(AGENT, "sandbox_exec", "ok", calls=3)
        await driver.until(lambda: re.search(r"sandbox_exec \d+s ago", driver.text()) is not None)
        # Nothing of what an agent calls itself reaches the terminal.
        assert "asks for sandbox_remove name=web" in driver.text() and "[31m" not in driver.text()
        # On the agent, the call that has waited longest is meant; on a call, that one.
        await driver.press("j", "a")
        await driver.until(lambda: approvals.answer_of(asked[0]) is Answer.APPROVED and lines(driver) == 3)
        await driver.press("j", "x")
        await driver.until(lambda: approvals.answer_of(asked[1]) is Answer.DENIED and lines(driver) == 2)
        # What is asked for here is seen here; only what else happened is told afterwards.
        approvals.over(approvals.ask(OTHER, str(own_identity()), "sandbox_fork", "", wait_s=3_600))
        spend(tmp_path)
        await driver.until(lambda: driver.app.held != [])
        for key, allowed in (("p", Allowed.PAUSED), ("s", Allowed.ASKING), ("r", Allowed.RUNNING)):
            await driver.press(key)
            await driver.until(partial(is_allowed, clients, allowed))
        await driver.press("k", "d")
        await driver.until(lambda: isinstance(driver.app.screen, ConfirmScreen) and AGENT in driver.text())
        await driver.press("y")
        await driver.until(lambda: clients.allowed(AGENT) is Allowed.ENDED)
        clients.left(AGENT)
        clients.left(OTHER)
        await driver.until(lambda: "no agent is connected" in driver.text())
        await driver.press("escape")
        await driver.until(driver.is_in_list)
        await driver.until(lambda: any("is spent" in told for told in driver.toasts()))
        assert not any("sandbox_fork" in told for told in driver.toasts())


async def test_who_may_only_look_changes_nothing_of_an_agent(tmp_path: Path, clients: Clients) -> None:
    settings = Settings(home=home_at(tmp_path), ui=Ui(read_only=True))
    async with dashboard(tmp_path, FakeCloud(), settings=settings, size=(60, 20)) as driver:
        await driver.press(key_of_action("clients"))
        await driver.until(lambda: lines(driver) == 2)
        await driver.press("p", "d", "a")
        await driver.pilot.pause()
        assert isinstance(driver.app.screen, ClientsScreen) and "p pause" not in driver.text()
        assert clients.allowed(AGENT) is Allowed.RUNNING
    assert len(head_of(60)) <= 60
