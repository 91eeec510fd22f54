"""Running commands from the dashboard, and the view of what they print."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.app import App, ComposeResult

from sbxtui.core.errors import GuestUnreachable
from sbxtui.core.model import SandboxState
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.tabs.shell import ShellTab
from sbxtui.tui.widgets.output import OutputView
from sbxtui.tui.widgets.transcript import Transcript
from tests.support.fake_services import FakeCloud, OnOutput, sandbox
from tests.tui.driving import Driver, dashboard, shown


def cloud_that(run: Callable[[str, OnOutput], Awaitable[int]]) -> FakeCloud:
    return FakeCloud(sandboxes=[sandbox("api"), sandbox("web")], run=run)


async def until_cancelled(line: str, on_output: OnOutput) -> int:
    await on_output("out", b"started\n")
    await asyncio.Event().wait()
    return 0


def run_status(driver: Driver) -> str:
    return shown(driver.main.query_one("#shell-status"))  # type: ignore[arg-type]  # it is a static


async def test_a_line_is_run_and_its_output_exit_code_and_time_are_shown(tmp_path: Path) -> None:
    async def run(line: str, on_output: OnOutput) -> int:
        await on_output("out", f"you said {line}\n".encode())
        await on_output("err", b"and it failed\n")
        return 3

    async with dashboard(tmp_path, cloud_that(run)) as driver:
        await driver.press("e", *"ls", "enter")
        await driver.until(lambda: "exit 3" in driver.text())
        for words in ("$ ls", "you said ls", "and it failed", "0.1s", "2 lines"):
            assert words in driver.text()


async def test_keys_typed_right_after_e_go_to_the_line_and_nowhere_else(tmp_path: Path) -> None:
    lines: list[str] = []

    async def run(line: str, on_output: OnOutput) -> int:
        lines.append(line)
        return 0

    async with dashboard(tmp_path, cloud_that(run)) as driver:
        await driver.press(*"ed y q", "enter")
        await driver.until(lambda: lines == ["d y q"])
        assert driver.app.screen is driver.main


async def test_ctrl_c_stops_the_command_and_says_so(tmp_path: Path) -> None:
    cloud = cloud_that(until_cancelled)
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("e", *"sleep", "enter")
        await driver.until(lambda: "ctrl+c stops" in run_status(driver))
        await driver.press("ctrl+c")
        await driver.until(lambda: "stopped by you" in driver.text())
        assert cloud.cancelled == ["sleep"]
        assert driver.app.return_code is None


async def test_a_command_goes_on_while_another_sandbox_is_looked_at(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_that(until_cancelled)) as driver:
        await driver.press("g", "e", *"first", "enter")
        await driver.until(lambda: "started" in driver.text())
        await driver.press("escape", "j")
        await driver.until(lambda: "nothing was run here yet" in driver.text())
        await driver.press("k")
        await driver.until(lambda: "$ first" in driver.text())
        assert "ctrl+c stops" in run_status(driver)


async def test_one_command_at_a_time_in_one_sandbox(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_that(until_cancelled)) as driver:
        await driver.press("e", "a", "enter", "b", "enter")
        assert any("one command at a time" in words for words in driver.toasts())


async def test_leaving_while_a_command_runs_asks(tmp_path: Path) -> None:
    cloud = cloud_that(until_cancelled)
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("e", "a", "enter")
        await driver.until(lambda: "started" in driver.text())
        await driver.press("escape", "q")
        assert isinstance(driver.app.screen, ConfirmScreen)
        await driver.press("y")
        await driver.until(lambda: driver.app.return_code == 0)
        assert cloud.cancelled == ["a"]


async def test_leaving_waits_until_the_command_was_ended_in_its_guest(tmp_path: Path) -> None:
    ended: list[str] = []

    async def run(line: str, on_output: OnOutput) -> int:
        await on_output("out", b"started\n")
        try:
            await asyncio.Event().wait()
        finally:
            # Ending it is a call of its own, which must not be cut off in turn.
            for _ in range(20):
                await asyncio.sleep(0)
            ended.append(line)
        return 0

    async with dashboard(tmp_path, cloud_that(run)) as driver:
        await driver.press("e", "a", "enter")
        await driver.until(lambda: "started" in driver.text())
        driver.app.leave(129)
        await driver.pilot.pause()
        driver.app.leave(1)
        await driver.until(lambda: driver.app.return_code == 129)
        assert ended == ["a"]


async def test_an_unreachable_guest_is_an_end_with_a_reason(tmp_path: Path) -> None:
    async def run(line: str, on_output: OnOutput) -> int:
        raise GuestUnreachable("`api` does not answer", hint="`sbx ps api`")

    async with dashboard(tmp_path, cloud_that(run)) as driver:
        await driver.press("e", "a", "enter")
        await driver.until(lambda: "`api` does not answer" in driver.text())
        await driver.press("b", "enter")
        await driver.until(lambda: driver.text().count("does not answer") >= 2)


async def test_a_suspended_sandbox_says_why_a_line_may_fail(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api", SandboxState.SUSPENDED)])
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("2")
        assert "api is z suspended" in run_status(driver)


async def test_earlier_lines_come_back_with_the_up_key(tmp_path: Path) -> None:
    async def run(line: str, on_output: OnOutput) -> int:
        return 0

    async with dashboard(tmp_path, cloud_that(run)) as driver:
        await driver.press("e", *"one", "enter")
        await driver.until(lambda: "exit 0" in driver.text())
        await driver.press("up")
        assert driver.main.query_one("#line").value == "one"  # type: ignore[attr-defined]  # it is an input
        await driver.press("down")
        assert driver.main.query_one("#line").value == ""  # type: ignore[attr-defined]  # the same


async def test_a_flood_leaves_the_keys_working_and_counts_what_it_drops(tmp_path: Path) -> None:
    async def run(line: str, on_output: OnOutput) -> int:
        while True:
            await on_output("out", b"y\n" * 32_768)

    async with dashboard(tmp_path, cloud_that(run)) as driver:
        await driver.press("e", *"yes", "enter")
        await driver.until(lambda: "dropped" in run_status(driver))
        await driver.press("escape", "j")
        await driver.until(lambda: driver.main.fleet.cursor == 1)
        await driver.press("k", "e", "ctrl+c")
        await driver.until(lambda: "stopped by you" in driver.text())
        transcript = driver.main.query_one(ShellTab).consoles["mvm-api"].transcript
        assert transcript.end - transcript.first <= 10_001


class OutputApp(App[None]):
    """An output view alone."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self.transcript = transcript

    def compose(self) -> ComposeResult:
        yield OutputView()

    def on_mount(self) -> None:
        view = self.query_one(OutputView)
        view.focus()
        view.show(self.transcript)

    def lines(self) -> list[str]:
        """What is on the screen, without the scrollbar."""
        return [strip.text[:38].strip() for strip in self.screen._compositor.render_strips()]


def numbered(first: int, end: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, end))


async def test_the_view_goes_on_painting_when_the_cap_is_reached() -> None:
    app = OutputApp(Transcript(max_lines=110))
    async with app.run_test(size=(40, 10)) as pilot:
        view = app.query_one(OutputView)
        for batch in range(0, 400, 40):
            app.transcript.feed("out", numbered(batch, batch + 40))
            view.paint()
            await pilot.pause()
            assert f"line {batch + 39}" in app.lines()


async def test_a_paused_view_holds_its_lines_while_newer_ones_push_old_ones_out() -> None:
    app = OutputApp(Transcript(max_lines=100))
    async with app.run_test(size=(40, 10)) as pilot:
        view = app.query_one(OutputView)
        app.transcript.feed("out", numbered(0, 100))
        view.paint()
        view.do_output_page_up()
        before = app.lines()
        app.transcript.feed("out", numbered(100, 140))
        view.paint()
        await pilot.pause()
        assert app.lines() == before
        assert view.newer_lines == 49
        view.do_output_follow()
        await pilot.pause()
        assert "line 139" in app.lines()
        assert view.is_following


async def test_a_paused_view_whose_lines_are_gone_shows_the_oldest_kept() -> None:
    app = OutputApp(Transcript(max_lines=100))
    async with app.run_test(size=(40, 10)) as pilot:
        view = app.query_one(OutputView)
        app.transcript.feed("out", numbered(0, 100))
        view.paint()
        view.do_output_top()
        app.transcript.feed("out", numbered(100, 300))
        view.paint()
        await pilot.pause()
        assert app.lines()[0] == "line 200"
        assert not view.is_following


async def test_the_wheel_pauses_and_the_end_follows_again() -> None:
    app = OutputApp(Transcript())
    async with app.run_test(size=(40, 10)) as pilot:
        view = app.query_one(OutputView)
        app.transcript.feed("out", numbered(0, 100))
        view.paint()
        await pilot.pause()
        view.scroll_relative(y=-5, animate=False)
        await pilot.pause()
        assert not view.is_following
        view.scroll_relative(y=50, animate=False)
        await pilot.pause()
        assert view.is_following


async def test_a_long_line_is_reached_sideways() -> None:
    app = OutputApp(Transcript())
    async with app.run_test(size=(40, 10)) as pilot:
        app.transcript.feed("out", b"0123456789" * 8 + b"END     \n")
        app.query_one(OutputView).paint()
        await pilot.pause()
        assert "END" not in app.lines()[0]
        for _ in range(3):
            app.query_one(OutputView).do_output_right()
        await pilot.pause()
        assert "END" in app.lines()[0]
