"""Text from a sandbox or a cloud never reaches the terminal as anything but text."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.strip import Strip

from sbxtui.core.errors import ControlUnavailable
from sbxtui.core.model import SandboxState
from tests.support.fake_services import FakeCloud, OnOutput, sandbox
from tests.tui.driving import Driver, dashboard

ATTACKS = {
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "title": "\x1b]0;pwned\x07",
    "clear": "\x1b[2J\x1b[H",
    "c1-csi": "\x9b2J",
    "device": "\x1bP$q\x1b\\",
    "bidi": "\u202egnp.exe\u2066",
    "markup": "[bold red]x[/] [@click=app.quit]y[/]",
    "broken markup": "[/nothing] [",
    "newline": "a\nb\r\nc",
    "hidden": "a\u200bb\ufeffc\U000e0041",
}
FORBIDDEN = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u202e\u2066\u200b\ufeff\U000e0041"}


def written(driver: Driver) -> str:
    """The characters of every cell on screen, before the terminal driver adds its own sequences."""
    strips: list[Strip] = driver.app.screen._compositor.render_strips()
    return "".join(segment.text for strip in strips for segment in strip if not segment.control)


def assert_harmless(driver: Driver) -> None:
    assert FORBIDDEN & set(written(driver)) == set()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_names_reasons_labels_and_facts_are_text(tmp_path: Path, attack: str) -> None:
    bad = sandbox(
        f"web{attack}",
        SandboxState.TERMINATED,
        state_reason=f"why{attack}",
        labels={f"k{attack}": f"v{attack}"},
        facts={"network": f"none{attack}", f"odd{attack}": attack},
        image_arn=f"arn:aws:lambda:x:y:microvm-image:img{attack}",
        endpoint=f"host{attack}",
    )
    cloud = FakeCloud(sandboxes=[bad], isolation=f"words{attack}")
    async with dashboard(tmp_path, cloud, size=(200, 50)) as driver:
        assert "web" in driver.text()
        assert_harmless(driver)
        for key in ("d", "escape", "i", "escape"):
            await driver.press(key)
            await driver.pilot.pause()
            assert_harmless(driver)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_output_and_the_command_line_are_text(tmp_path: Path, attack: str) -> None:
    async def run(line: str, on_output: OnOutput) -> int:
        await on_output("out", f"out {attack}\n".encode("utf-8", "surrogatepass"))
        await on_output("err", attack.encode() * 3)
        return 0

    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")], run=run)) as driver:
        await driver.press("e", "x", "enter")
        await driver.until(lambda: "exit 0" in driver.text())
        assert_harmless(driver)


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_errors_are_text_in_the_notice_the_toast_and_the_page(tmp_path: Path, attack: str) -> None:
    error = ControlUnavailable(f"no{attack}", hint=f"do{attack}", details={f"d{attack}": attack})
    async with dashboard(tmp_path, FakeCloud(error=error)) as driver:
        await driver.until(lambda: "cannot be asked" in driver.text())
        assert_harmless(driver)
        driver.main.failed(f"doing{attack}", error)
        await driver.press("o")
        await driver.pilot.pause()
        assert_harmless(driver)


async def test_markup_in_a_name_is_shown_as_it_is_written(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("a[bold]b[/]c")])
    async with dashboard(tmp_path, cloud, size=(160, 40)) as driver:
        assert driver.text().count("a[bold]b[/]c") >= 3
