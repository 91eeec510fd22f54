"""Text from a sandbox or a cloud never reaches the terminal as anything but text."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.strip import Strip
from textual.widgets import Input

from sbxtui.core.errors import ControlUnavailable
from sbxtui.core.model import SandboxState
from tests.support.fake_services import FakeCloud, OnOutput, sandbox
from tests.tui.driving import Driver, dashboard

pytestmark = pytest.mark.long

ATTACKS = (
    "\x1b]52;c;ZXZpbA==\x07",  # clipboard
    "\x1b]0;pwned\x07",  # title
    "\x1b[2J\x1b[H",  # clear
    "\x9b2J",  # c1-csi
    "\x1bP$q\x1b\\",  # device
    "\u202egnp.exe\u2066",  # bidi
    "[bold red]x[/] [@click=app.quit]y[/]",  # markup
    "[/nothing] [",  # broken markup
    "a\nb\r\nc",  # newline
    "a\u200bb\ufeffc\U000e0041",  # hidden
)
FORBIDDEN = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u202e\u2066\u200b\ufeff\U000e0041"}


def written(driver: Driver) -> str:
    """The characters of every cell on screen, before the terminal driver adds its own sequences."""
    strips: list[Strip] = driver.app.screen._compositor.render_strips()
    return "".join(segment.text for strip in strips for segment in strip if not segment.control)


def assert_harmless(driver: Driver) -> None:
    assert FORBIDDEN & set(written(driver)) == set()


async def sees(driver: Driver, text: str) -> None:
    await driver.until(lambda: text in driver.text())


async def test_names_reasons_labels_and_facts_are_text(tmp_path: Path) -> None:
    bad = [
        sandbox(
            f"web{number}{attack}",
            SandboxState.TERMINATED,
            state_reason=f"why{attack}",
            labels={f"k{attack}": f"v{attack}"},
            facts={"network": f"none{attack}", f"odd{attack}": attack},
            image_arn=f"arn:aws:lambda:x:y:microvm-image:img{attack}",
            endpoint=f"host{attack}",
        )
        for number, attack in enumerate(ATTACKS)
    ]
    async with dashboard(
        tmp_path, FakeCloud(sandboxes=bad, isolation=f"words{''.join(ATTACKS)}"), size=(200, 50)
    ) as driver:
        for number in range(len(ATTACKS)):
            assert f"web{number}" in driver.text()
            for key in ("d", "escape", "i", "escape", "down"):
                await driver.press(key)
                await driver.pilot.pause()
                assert_harmless(driver)


async def test_output_and_the_command_line_are_text(tmp_path: Path) -> None:
    async def run(line: str, on_output: OnOutput) -> int:
        attack = ATTACKS[int(line)]
        await on_output("out", f"out {attack}\n".encode("utf-8", "surrogatepass"))
        await on_output("err", attack.encode() * 3)
        return int(line) + 10

    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")], run=run)) as driver:
        for number in range(len(ATTACKS)):
            await driver.press("e", str(number), "enter")
            await sees(driver, f"exit {number + 10}")
            assert_harmless(driver)
            await driver.press("escape")


async def test_errors_are_text_in_the_notice_the_toast_and_the_page(tmp_path: Path) -> None:
    cloud = FakeCloud(error=ControlUnavailable("no answer"))
    async with dashboard(tmp_path, cloud) as driver:
        for number, attack in enumerate(ATTACKS):
            said, hint, details = f"no{number}{attack}", f"do{attack}", {f"d{attack}": attack}
            error = cloud.error = ControlUnavailable(said, hint=hint, details=details)
            driver.main.services.watch.look_now()
            await sees(driver, f"no{number}")
            assert_harmless(driver)
            driver.main.failed(f"doing{attack}", error)
            await driver.press("o")
            await driver.pilot.pause()
            assert_harmless(driver)
            await driver.press("escape")


async def test_markup_in_a_name_is_shown_as_it_is_written(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("a[bold]b[/]c")])
    async with dashboard(tmp_path, cloud, size=(160, 40)) as driver:
        assert driver.text().count("a[bold]b[/]c") >= 3


async def test_what_is_typed_and_pasted_is_drawn_as_text_in_every_line(tmp_path: Path) -> None:
    pasted = "".join(ATTACKS).replace("\n", "").replace("\r", "") + "\ud800end"
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")]), size=(200, 40)) as driver:
        for key in ("e", "n", "R", "slash"):
            await driver.press("escape", key)
            line = driver.app.focused
            assert isinstance(line, Input)
            line.value = pasted
            await driver.until(lambda: "pwned" in driver.text())
            assert_harmless(driver)
