"""When something fails that nobody foresaw: a report without secrets, and a dashboard that goes on if it can."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sbxtui.tui.crash import crash_text, write_crash_report
from sbxtui.tui.messages import Progress
from sbxtui.tui.tabs.jobs import JobsTab
from sbxtui.tui.tabs.jobwork import Told
from sbxtui.tui.widgets.bars import StatusBar
from tests.support.fake_services import FakeCloud, OnOutput, home_at, sandbox
from tests.tui.driving import dashboard


def raised() -> BaseException:
    password = "hunter2-in-a-local-variable"
    try:
        raise ValueError(
            f"bad token AKIAABCDEFGHIJKLMNOP and eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9abc in {len(password)}"
        )
    except ValueError as exc:
        return exc


def test_a_report_says_where_and_what_but_no_values_and_nothing_like_a_secret() -> None:
    text = crash_text(raised(), datetime(2026, 3, 1, tzinfo=UTC))
    assert "in raised" in text and "ValueError" in text
    assert "AKIA" not in text and "eyJhbGci" not in text
    assert text.count("[left out]") == 2


def test_a_report_says_where_however_long_the_path_is(tmp_path: Path) -> None:
    place = str(tmp_path / ("a" * 40) / "module.py")
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", place, "exec"))
    assert f'File "{place}", line 1' in crash_text(caught.value, datetime(2026, 3, 1, tzinfo=UTC))


def test_a_report_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    file = write_crash_report(home_at(tmp_path), raised())
    assert file is not None and file.parent == home_at(tmp_path).log_dir
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_unwritable_home_gives_no_report_and_no_second_error(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    assert write_crash_report(home_at(tmp_path), raised()) is None


async def test_a_worker_that_fails_unforeseen_leaves_a_report_and_the_dashboard_runs_on(tmp_path: Path) -> None:
    async def run(line: str, on_output: OnOutput) -> int:
        raise ZeroDivisionError("never foreseen")

    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")], run=run)) as driver:
        await driver.press("e", "x", "enter")
        await driver.until(lambda: any("ZeroDivisionError" in words for words in driver.toasts()))
        assert list(home_at(tmp_path).log_dir.glob("crash-*.txt"))
        await driver.press("escape", "j")
        assert driver.app.return_code is None
        assert "stopped" in driver.text() or "failed" in driver.text()


async def test_a_handler_that_fails_ends_the_dashboard_with_a_report(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")])) as driver:
            driver.main.fleet.sort_next = lambda: 1 // 0  # type: ignore[method-assign,assignment]  # a defect
            await driver.press("s")
            await driver.pilot.pause()
    [file] = home_at(tmp_path).log_dir.glob("crash-*.txt")
    assert "ZeroDivisionError" in file.read_text()


async def test_what_is_told_of_a_widget_that_is_not_there_ends_nothing_but_itself(tmp_path: Path) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")])) as driver:
        jobs = driver.main.query_one(JobsTab)
        await driver.main.query_one(StatusBar).remove()
        await jobs.query_one("#jobs-status").remove()
        driver.main.post_message(Progress("work", "words"))
        await driver.until(driver.toasts)
        jobs.post_message(Told("mvm-api", None))
        await driver.until(lambda: len(driver.toasts()) > 1)
        assert all("NoMatches" in words for words in driver.toasts())
        # A key of the application meets the same, does what it can, and the next one does so, too.
        await driver.press("s", "s")
        assert (driver.main.fleet.sort, driver.app.return_code) == ("age", None)
    assert list(home_at(tmp_path).log_dir.glob("crash-*.txt"))
