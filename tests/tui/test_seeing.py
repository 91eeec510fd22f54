"""The logs and metrics tabs: what they show, what they keep, and that nobody is asked who would be kept awake by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from textual.widgets import Static

from sbxtui.core.logs import LogSource
from sbxtui.tui import clock
from sbxtui.tui.logbook import MAX_LINES, Logbook
from sbxtui.tui.tabs.logs import LogsTab
from tests.support.fake_seeing import busy_hour, line
from tests.support.fake_services import FakeCloud, sandbox
from tests.tui.driving import Driver, dashboard, shown, tab_key


def status(driver: Driver) -> str:
    return shown(driver.main.query_one("#log-status", Static))


async def test_a_log_is_followed_paused_searched_told_apart_by_job_and_saved(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    seeing = cloud.seeing
    seeing.lines_there = [line(f"line {number}", job=f"job-{number % 2}") for number in range(60)]
    seeing.lines_there.append(line("from the platform", source=LogSource.CLOUDWATCH))
    async with dashboard(tmp_path, cloud, size=(80, 24)) as driver:
        await driver.press(tab_key("logs"), "tab")
        await driver.until(lambda: "line 59" in driver.text())
        assert "following" in status(driver)
        await driver.press("g")
        await driver.until(lambda: "PAUSED" in status(driver) and "line 0" in driver.text())
        seeing.lines_there.append(line("boom \x1b[31m[b]now[/b]", channel="err", job="job-1"))
        seeing.more.set()
        await driver.until(lambda: driver.main.query_one(LogsTab).book.count == 61)
        assert "line 0" in driver.text(), "a paused view does not move"
        await driver.press("slash", *"boom", "enter")
        await driver.until(lambda: "line 0" not in driver.text())
        assert "job-1     boom [b]now[/b]" in driver.text() and "/boom" in status(driver)
        await driver.press("W", *["ctrl+u"], *str(tmp_path / "saved"), "enter")
        await driver.until((tmp_path / "saved").exists)
        await driver.until(lambda: any("wrote 1 lines" in told for told in driver.toasts()))
        assert (tmp_path / "saved").read_text().endswith("job-1     boom [b]now[/b]\n")
        await driver.press("slash", "ctrl+u", "enter", "b", "down", "down", "down", "enter")
        await driver.until(lambda: "job job-" in status(driver))
        await driver.press("s", "down", "enter")
        await driver.until(lambda: "from the platform" in driver.text())


async def test_a_search_that_never_ends_is_taken_back_and_told(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    cloud.seeing.lines_there = [line("a" * 60 + "b"), line("other")]
    async with dashboard(tmp_path, cloud, size=(80, 24)) as driver:
        await driver.press(tab_key("logs"), "tab")
        await driver.until(lambda: "other" in driver.text())
        await driver.press("slash", *"(a+)+$", "enter")
        await driver.until(lambda: any("came to no end" in told for told in driver.toasts()))
        assert "other" in driver.text() and "/(a+)+$" not in status(driver)


def test_only_so_many_lines_are_kept_and_what_is_gone_is_counted() -> None:
    book = Logbook()
    book.add(line(str(number)) for number in range(MAX_LINES + 10))
    assert book.dropped == 10
    assert len(book.wanted()) == MAX_LINES and book.wanted()[0].endswith(" 10")
    book.look.width = 20
    book.look.has_times = False
    book.clear()
    book.add([line("x" * 45)])
    assert book.transcript.line(0) is not None
    assert book.transcript.end == 3


async def test_charts_are_read_at_80_by_24_and_old_values_have_their_age(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    cloud.seeing.history = busy_hour(clock.now())
    cloud.seeing.usage = cloud.seeing.history[-1]
    async with dashboard(tmp_path, cloud, size=(80, 24)) as driver:
        await driver.press(tab_key("metrics"), "tab")
        await driver.until(lambda: "100.0 % of 4" in driver.text())
        shown_lines = driver.text()
        (cpu,) = [text for text in shown_lines.splitlines() if "100.0 % of 4" in text]
        assert "▁" in cpu and cpu.rstrip("┃ ").endswith("█")
        expected = ("1.0 GiB of 2.0 GiB", "7.0 GiB free", "processes 7", "1 killed for want of", "now at the right")
        for words in expected:
            assert words in shown_lines, shown_lines
        assert cloud.seeing.asked[-1] is True


async def test_a_sandbox_that_sleeps_is_not_asked_and_shows_what_was(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api"), sandbox("web")])
    cloud.seeing.usage = replace(busy_hour(clock.now())[-1], cpu_percent=12.0)
    async with dashboard(tmp_path, cloud, size=(100, 30)) as driver:
        await driver.press(tab_key("metrics"))
        await driver.until(lambda: "12.0 %" in driver.text())
        asked = len(cloud.seeing.asked)
        # Going to another one is no wish to ask it.
        await driver.press("down")
        await driver.until(lambda: len(cloud.seeing.asked) > asked)
        assert cloud.seeing.asked[-1] is False


async def test_the_list_shows_what_a_sandbox_costs_and_used_of_late_and_the_cap_comes_with_an_offer(
    tmp_path: Path,
) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    cloud.seeing.history = busy_hour(clock.now())
    async with dashboard(tmp_path, cloud, size=(200, 30)) as driver:
        await driver.press("z")
        await driver.until(lambda: "▁▂▄▆█▇" in driver.text())
        (row,) = [text for text in driver.text().splitlines() if "▁▂▄▆█▇" in text]
        assert "~$0.13" in row and "PER HOUR" in driver.text()
        driver.main.services.events.record(
            context="local",
            kind="sandbox.cap",
            subject="api",
            actor="platform",
            data={"minutes": 5, "hint": "sbx cp -r api:/work . saves its files"},
        )
        await driver.until(lambda: any("saves its files; D saves them here" in told for told in driver.toasts()))
        await driver.press("D")
        await driver.until(lambda: "./api-work" in driver.text())
