"""The shell tab over a real guest: one shared shell, lines of ours and of others, whole screens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Static

from sbxtui.core.model import SandboxState
from sbxtui.services.shell import Shells
from sbxtui.tui.tabs.shell import ShellTab
from sbxtui.tui.widgets.lineinput import LineInput
from tests.support.guest_services import GuestScene, guest_scene
from tests.tui.driving import Driver, dashboard, shown

DEADLINE_S = 60.0


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[GuestScene]:
    async with guest_scene(tmp_path) as found:
        yield found


@asynccontextmanager
async def shell_tab(scene: GuestScene, size: tuple[int, int] = (100, 40)) -> AsyncIterator[Driver]:
    """The dashboard with the cursor in the line of the guest's shell."""
    settings = scene.real.settings
    root = settings.home.state_dir.parent
    async with dashboard(root, scene.cloud, size=size, factory=scene.services, settings=settings) as driver:
        slow = replace(driver, deadline_s=DEADLINE_S)
        await slow.press("e")
        yield slow


def line(driver: Driver) -> LineInput:
    return driver.main.query_one(LineInput)


def prompt(driver: Driver) -> str:
    return shown(driver.main.query_one("#shell-prompt", Static))


def status(driver: Driver) -> str:
    return shown(driver.main.query_one("#shell-status", Static))


def printed(driver: Driver) -> str:
    """Everything in the transcript."""
    transcript = driver.main.query_one(ShellTab).consoles["microvm-direct"].transcript
    lines = (transcript.line(seq) for seq in range(transcript.first, transcript.end))
    return "\n".join(one.text for one in lines if one is not None)


async def run(driver: Driver, text: str) -> None:
    """Type a line and enter it."""
    line(driver).put(text, len(text))
    await driver.press("enter")


async def test_lines_share_folder_and_variables_and_the_prompt_says_where(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        await run(driver, "mkdir -p a/b; cd a/b; export X=kept; false")
        await driver.until(lambda: "exit 1" in printed(driver))
        await driver.until(lambda: prompt(driver).endswith("/a/b $ "))
        await run(driver, "echo $X in $PWD; test -t 1 && echo on a terminal")
        await driver.until(lambda: "exit 0" in printed(driver))
        assert f"kept in {scene.guest.workdir}/a/b" in printed(driver) and "on a terminal" in printed(driver)


async def test_ctrl_c_interrupts_and_a_second_one_kills(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        await run(driver, "echo up; sleep 100")
        await driver.until(lambda: "\nup" in printed(driver))
        await driver.press("ctrl+c")
        await driver.until(lambda: "exit 130" in printed(driver))
        await run(driver, "trap '' INT; echo deaf; while :; do sleep 0.1; done")
        await driver.until(lambda: "\ndeaf" in printed(driver))
        await driver.press("ctrl+c")
        await driver.until(lambda: "again kills it" in status(driver))
        await driver.press("ctrl+c")
        await driver.until(lambda: "ended by KILL" in printed(driver))


async def test_lines_wait_their_turn_and_one_that_waits_is_shown_when_it_runs(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        await run(driver, "while ! [ -e go ]; do sleep 0.05; done; echo first")
        await driver.until(lambda: "running" in status(driver))
        await run(driver, "echo second")
        await driver.until(lambda: "1 waits" in status(driver))
        assert "echo second" not in printed(driver)
        (scene.guest.workdir / "go").touch()
        await driver.until(lambda: printed(driver).count("exit 0") == 2)
        assert (
            printed(driver).index("\nfirst")
            < printed(driver).index("$ echo second")
            < printed(driver).index("\nsecond")
        )


async def test_lines_of_others_show_up_with_their_author(scene: GuestScene) -> None:
    agent = Shells(scene.real.guests, scene.real.jobs.notes, "mcp:agent#7")
    async with agent.open(scene.row) as theirs:
        await theirs.run("echo before anybody looked; cd /")
        async with shell_tab(scene) as driver:
            await driver.until(lambda: "before anybody looked" in printed(driver).replace("echo before", ""))
            assert "mcp:agent#7" in printed(driver)
            await driver.until(lambda: prompt(driver) == "/ $ ")
            await theirs.run("echo while we look; cd /tmp")
            await driver.until(lambda: "\nwhile we look" in printed(driver))
            await driver.until(lambda: prompt(driver) == "/tmp $ ")
            await run(driver, "pwd")
            await driver.until(lambda: "\n/tmp\n" in printed(driver))


@pytest.mark.long
async def test_a_flood_leaves_keys_answered_and_memory_bounded(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        await run(driver, "yes")
        await driver.until(lambda: "dropped" in status(driver))
        await driver.press(*"typed")
        assert line(driver).value == "typed"
        transcript = driver.main.query_one(ShellTab).consoles["microvm-direct"].transcript
        assert transcript.end - transcript.first <= 10_001
        await driver.press("ctrl+c")
        await driver.until(lambda: not transcript.is_running)
        # What it had said by then would take long to be shown, and is more than is kept.
        last = transcript.line(transcript.end - 1)
        assert last is not None and last.text.endswith(" left out")
        await driver.until(lambda: status(driver).startswith("dropped"))


async def test_a_whole_screen_is_offered_the_terminal_and_kept_out_of_the_lines(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        await run(
            driver,
            "printf 'plain\\n\\033[?1049hdrawn'; while ! [ -e go ]; do sleep 0.05; done; printf '\\033[?1049lend'",
        )
        await driver.until(lambda: "enter lends yours" in status(driver))
        await driver.press("enter")
        # A screen in memory is no terminal.
        await driver.until(lambda: any("cannot be lent" in words for words in driver.toasts()))
        (scene.guest.workdir / "go").touch()
        await driver.until(lambda: "exit 0" in printed(driver))
        assert "\nplain\n" in printed(driver) and "\nend\n" in printed(driver) and "\ndrawn" not in printed(driver)


async def test_words_are_completed_with_what_is_in_the_sandbox(scene: GuestScene) -> None:
    for name in ("notes one.txt", "src/main.py", "src/make.py"):
        (scene.guest.workdir / name).parent.mkdir(exist_ok=True)
        (scene.guest.workdir / name).touch()
    async with shell_tab(scene) as driver:
        await driver.press(*"cat no", "tab")
        await driver.until(lambda: line(driver).value == "cat notes\\ one.txt ")
        line(driver).put("cat s", 5)
        await driver.press("tab")
        await driver.until(lambda: line(driver).value == "cat src/")
        await driver.press("m", "tab")
        await driver.until(lambda: line(driver).value == "cat src/ma")
        assert status(driver) == "main.py make.py"
        line(driver).put("print", 5)
        await driver.press("tab")
        await driver.until(lambda: "printf" in line(driver).value + status(driver))


@pytest.mark.long
async def test_history_outlives_the_dashboard_and_is_searched(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        for text in ("echo one", "true", "echo two"):
            await run(driver, text)
        await driver.until(lambda: printed(driver).count("exit 0") == 3)
    async with shell_tab(scene) as driver:
        tab = driver.main.query_one(ShellTab)
        await driver.until(lambda: tab.consoles and len(line(driver).history.lines) == 3)
        await driver.press(*"echo", "up")
        assert line(driver).value == "echo two"
        await driver.press("up")
        assert line(driver).value == "echo one"
        await driver.press("down", "down")
        assert line(driver).value == "echo"


async def test_a_line_of_the_dashboard_before_is_gone_on_with(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        await run(driver, "echo early; while ! [ -e go ]; do sleep 0.05; done; echo late")
        await driver.until(lambda: "\nearly" in printed(driver))
    async with shell_tab(scene) as driver:
        await driver.until(lambda: "\nearly" in printed(driver))
        (scene.guest.workdir / "go").touch()
        await driver.until(lambda: "\nlate" in printed(driver) and "exit 0" in printed(driver))


@pytest.mark.long
async def test_a_sandbox_that_is_suspended_and_resumed_in_the_middle_loses_nothing(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        await run(driver, "echo early; while ! [ -e go ]; do sleep 0.05; done; echo late")
        await driver.until(lambda: "\nearly" in printed(driver))
        become(scene, driver, SandboxState.SUSPENDED)
        await driver.until(lambda: "the line goes on" in printed(driver))
        await driver.until(lambda: "app is z suspended" in status(driver))
        (scene.guest.workdir / "go").touch()
        become(scene, driver, SandboxState.RUNNING)
        await driver.until(lambda: "\nlate" in printed(driver) and "exit 0" in printed(driver))
        assert printed(driver).count("\nearly") == 1


async def test_a_guest_that_goes_away_is_told_with_what_to_do(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        await run(driver, "echo up; sleep 100")
        await driver.until(lambda: "\nup" in printed(driver))
        scene.cloud.sandboxes = []
        driver.main.services.watch.look_now()
        await driver.until(lambda: "no sandbox is selected" in status(driver))
        assert driver.app.return_code is None


def become(scene: GuestScene, driver: Driver, state: SandboxState) -> None:
    """The control plane tells another state."""
    scene.cloud.sandboxes = [replace(scene.cloud.sandboxes[0], state=state)]
    driver.main.services.watch.look_now()


async def test_several_pasted_lines_ask_once_and_run_in_one_go(scene: GuestScene) -> None:
    async with shell_tab(scene) as driver:
        line(driver).post_message(LineInput.Pasted("A=1\necho got $A"))
        await driver.until(lambda: "Run 2 pasted lines?" in driver.text())
        await driver.press("y")
        await driver.until(lambda: "\ngot 1" in printed(driver))
