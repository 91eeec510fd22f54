"""The activity tab: every change of every face as the command line that does it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from textual.widgets import Static

from sbxtui.core.model import Event
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.tui.changes import changes_of, line_of
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.tabs.activity import ActivityTab
from tests.support.fake_services import FakeCloud, home_at, sandbox
from tests.tui.driving import Driver, dashboard, shown, tab_key

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def event(kind: str, subject: str = "web", seq: int = 1, at_s: float = 0, **data: object) -> Event:
    return Event(seq, NOON + timedelta(seconds=at_s), "local", kind, subject, "cli:you", data)


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (event("sandbox.suspend"), "sbx stop web"),
        (event("sandbox.renamed", "new", 1, 0, **{"from": "old"}), "sbx rename old new"),
        (event("sandbox.adopted", id="mvm-1"), "sbx adopt mvm-1 web"),
        (event("sandbox.labels", changed=["ci", "team"]), "sbx label web 'ci=… team=…'"),
        (event("files.mkdir", path="/work/a b"), "sbx fs mkdir web '/work/a b'"),
        (event("files.mv", "web", 1, 0, path="/b", **{"from": "/a"}), "sbx fs mv web /a /b"),
        (event("files.mv", path="/b"), "sbx fs mv web SRC /b"),
        (event("sandbox.suspend.failed"), "sbx stop web"),
        (event("job.started", cli="sbx exec web -- make"), "sbx exec web -- make"),
        (event("sandbox.network", network="allow=a:443"), "sbx network web --allow=a:443"),
        (event("sandbox.remove.failed", error="no answer"), "sbx rm web"),
        (event("sync.start", root="/home/you/a b"), "sbx sync web '/home/you/a b'"),
        (event("sync.running"), "sbx sync resume web"),
        (event("budget.reached"), "budget.reached web"),
        (event("sandbox.suspend", "$(reboot)"), "sbx stop '$(reboot)'"),
    ],
)
def test_an_event_is_the_line_that_does_it(told: Event, line: str) -> None:
    assert line_of(told) == line


def test_a_launch_is_one_change_with_its_duration() -> None:
    open_one = [event("sandbox.reserved", seq=1)]
    assert changes_of(open_one)[0].is_open
    taken = [*open_one, event("sandbox.tracked", seq=2, at_s=0.01)]
    assert [(one.result, one.took_s) for one in changes_of(taken)] == [("ok", None)]
    ready = event("sandbox.facts", seq=3, at_s=1.5, changed=["guest_version", "launch"])
    later = event("sandbox.facts", seq=4, at_s=9, changed=["launch"])
    [done] = changes_of([*taken, ready, later])
    assert (done.line, done.result, done.took_s) == ("sbx create web", "ok", 1.5)
    [failed] = changes_of([*open_one, event("sandbox.removed", seq=2, at_s=3, reason="launch refused")])
    assert (failed.result, failed.words) == ("failed", "launch refused")


def test_a_command_is_one_change_with_its_exit_code_and_no_secret_words() -> None:
    begun = event("job.start", seq=1, job="j1", program="make")
    [change] = changes_of([begun, event("job.exit", seq=2, at_s=2, job="j1", exit_code=3)])
    assert (change.line, change.result, change.took_s) == ("sbx exec web -- make …", "exit 3", 2.0)
    assert change.is_odd and not change.is_failure


def test_facts_of_machines_are_no_changes_and_hostile_text_is_harmless() -> None:
    assert changes_of([event("sandbox.facts")]) == []
    [change] = changes_of([event("x\x1b[2J", "we\x1b]0;t\x07b\n", error="\x9b2J")])
    assert "\x1b" not in change.line + change.subject + change.words and "\n" not in change.line


def record(root: Path, kind: str, subject: str, **data: object) -> None:
    store = Store.open(home_at(root))
    Events(store).record(context="local", kind=kind, subject=subject, actor="mcp:claude", data=data)
    store.close()


def lines(driver: Driver) -> list[str]:
    return [one.line for one in driver.main.query_one(ActivityTab).changes]


def status(driver: Driver) -> str:
    return shown(driver.main.query_one("#activity-status", Static))


async def test_changes_of_other_faces_come_in_with_author_duration_and_result(tmp_path: Path) -> None:
    record(tmp_path, "sandbox.suspend", "api", took_s=3.2)
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api"), sandbox("web")]), size=(160, 40)) as driver:
        await driver.press(tab_key("activity"), "tab", "A")
        await driver.until(lambda: lines(driver) == ["sbx stop api"])
        record(tmp_path, "sandbox.resume.failed", "web", error="it is gone", took_s=0.5)
        await driver.until(lambda: "sbx start web" in driver.text())
        for words in ("mcp:claude", "3.2s", "failed", "it is gone", "2 changes of all sandboxes · 1 failed"):
            assert words in driver.text()


async def test_the_line_is_copied_the_details_shown_and_one_sandbox_kept_apart(tmp_path: Path) -> None:
    record(tmp_path, "sandbox.suspend", "api")
    record(tmp_path, "sandbox.suspend.failed", "web")
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api"), sandbox("web")]), size=(160, 40)) as driver:
        await driver.press("g", tab_key("activity"), "tab")
        await driver.until(lambda: len(lines(driver)) == 2)
        assert status(driver) == "1 change of api · 0 failed · A: all sandboxes"
        await driver.press("escape")
        await driver.until(lambda: status(driver).endswith("· tab A: all sandboxes"))
        await driver.press("tab")
        await driver.press("A")
        assert status(driver) == "2 changes of all sandboxes · 1 failed · A: this one"
        await driver.press("k", "y")
        await driver.until(lambda: driver.app.clipboard == "sbx stop api")
        await driver.press("A", "enter")
        assert isinstance(driver.app.screen, PageScreen)
        assert "what     sbx stop api" in driver.text()


async def test_commands_that_ended_with_another_code_are_told_apart_from_what_failed(tmp_path: Path) -> None:
    for seq, code in enumerate((0, 3), start=1):
        record(tmp_path, "job.start", "api", job=f"j{seq}", program="make")
        record(tmp_path, "job.exit", "api", job=f"j{seq}", exit_code=code)
    record(tmp_path, "sandbox.suspend.failed", "api", error="no answer")
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")]), size=(160, 40)) as driver:
        await driver.press(tab_key("activity"), "tab")
        await driver.until(lambda: status(driver).startswith("3 changes of api · 1 failed · 1 not exit 0"))
