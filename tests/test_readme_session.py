"""The README's session, told to the dashboard and to the Python API: each answers as the command line does."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Input

from sbxtui import Sandbox
from sbxtui.core.model import SandboxState
from sbxtui.settings import load
from sbxtui.tui.app import Dashboard
from sbxtui.tui.opening import FirstLook
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.wiring import Services
from tests.packaging.support import ROOT
from tests.support.console import fits, steps_of
from tests.support.sbx import Sbx, sbx_home
from tests.tui.acting import key_of_action
from tests.tui.driving import Driver

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the local cloud needs Linux"),
]
_EXEC = "sbx exec demo -- "
_TOLD_CODE = "; echo "
ANSWER = "print(6 * 7)\n"


@pytest.fixture
def sbx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sbx]:
    """A new home, as that of this very process."""
    with sbx_home(tmp_path / "home") as own:
        for name, value in own.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        yield own


def commands() -> list[tuple[str, str, int | None]]:
    """The README's lines that run in the sandbox, without `sbx exec demo --`: line, output, exit code if told."""
    found = []
    for line, output in steps_of((ROOT / "README.md").read_text()):
        if not line.startswith(_EXEC):
            continue
        command, told, _ = line.removeprefix(_EXEC).partition(_TOLD_CODE)
        said, _, code = output.rpartition("exit code ") if told else (output, "", "")
        found.append((command, said, int(code) if told else None))
    return found


def test_the_readme_runs_commands_of_which_one_fails() -> None:
    codes = [code for _, _, code in commands()]
    assert len(codes) >= 4 and 3 in codes


async def test_the_readmes_session_through_the_api(sbx: Sbx) -> None:
    async with await Sandbox.create("demo") as sandbox:
        await sandbox.write_file("/work/answer.py", ANSWER)
        *before, last = commands()
        for command, said, code in before:
            program, *words = shlex.split(command)
            ran = await sandbox.exec(program, words)
            assert fits(said, ran.stdout_text + ran.stderr_text), command
            assert code in (None, ran.exit_code)
        await sandbox.stop()
        assert [row["state"] for row in sbx.ok("ls", "--json").json] == ["SUSPENDED"]
        await sandbox.start()
        program, *words = shlex.split(last[0])
        assert (await sandbox.exec(program, words)).stdout_text == last[1]
    assert sbx.ok("ls", "--json").json == []


@pytest.mark.slow
async def test_the_readmes_session_through_the_dashboard(sbx: Sbx, tmp_path: Path) -> None:
    (tmp_path / "answer.py").write_text(ANSWER)
    settings = load(sbx.environment(), cwd=tmp_path)
    look = FirstLook(lambda name: Services(settings, actor="tui:you"))
    look.start()
    app = Dashboard(settings, look)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        driver = Driver(app, pilot, deadline_s=60.0)
        await driver.until(lambda: "no sandboxes yet" in driver.text())
        await driver.press(key_of_action("create"), *"demo", "enter")
        await driver.until(lambda: "created demo" in driver.status())
        await _upload(driver, tmp_path / "answer.py")
        *before, last = commands()
        for command, said, code in before:
            await _run(driver, command, said, code)
        await driver.press(key_of_action("toggle_pause"))
        await driver.until(lambda: _states(driver) == [SandboxState.SUSPENDED])
        await driver.press(key_of_action("toggle_pause"))
        await driver.until(lambda: "resumed demo" in driver.status())
        await driver.until(lambda: _states(driver) == [SandboxState.RUNNING])
        await _run(driver, *last)
        await driver.press(key_of_action("remove"), "y")
        await driver.until(lambda: "removed demo" in driver.status() and not driver.main.fleet.all)
    assert look.services is not None
    look.services.close()
    assert sbx.ok("ls", "--json").json == []


def _states(driver: Driver) -> list[SandboxState]:
    return [one.state for one in driver.main.fleet.all]


async def _upload(driver: Driver, file: Path) -> None:
    await driver.press(key_of_action("tab_files"), "tab")
    await driver.until(lambda: "demo:/work" in driver.text())
    await driver.press(key_of_action("files_upload"))
    assert isinstance(driver.app.screen, AskScreen)
    driver.app.screen.query_one(Input).value = str(file)
    await driver.press("enter")
    await driver.until(lambda: f" {file.name} " in driver.text())
    await driver.press("escape")


async def _run(driver: Driver, command: str, said: str, code: int | None) -> None:
    blocks = len(driver.output.transcript.blocks)
    await driver.press(key_of_action("run"), *command, "enter")
    await driver.until(
        lambda: len(driver.output.transcript.blocks) > blocks and driver.output.transcript.blocks[-1].words
    )
    block = driver.output.transcript.blocks[-1]
    text = driver.output.transcript.text_of(block)
    assert fits(said, text + "\n"), f"{command}:\n{text}\n--- but the README says\n{said}"
    assert code is None or block.words.startswith(f"exit {code} ")
    await driver.press("escape")
