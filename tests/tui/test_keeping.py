"""Forks, snapshots, secrets, budgets and keeping awake in the dashboard."""

from __future__ import annotations

from pathlib import Path

from sbxtui.core.life import KEEP_AWAKE
from sbxtui.services.awake import awake_spec
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from tests.support.fake_services import FakeCloud, now, sandbox
from tests.tui.driving import Driver, dashboard

VALUE = "s3cret-of-the-test"


async def _asked(driver: Driver, kind: type[object], title: str) -> None:
    await driver.until(lambda: isinstance(driver.app.screen, kind) and title in driver.text())


async def test_a_secret_is_given_without_ever_being_seen_and_taken_back(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("K")
        await _asked(driver, ChooseScreen, "Secrets of api")
        await driver.press("enter")
        await _asked(driver, AskScreen, "A secret for api")
        await driver.press(*"1", "enter", "backspace", *"API_KEY x.test,y.test")
        await driver.until(lambda: "$ sbx secret set api API_KEY --host x.test,y.test" in driver.text())
        await driver.press("enter")
        await _asked(driver, AskScreen, "The value of API_KEY")
        await driver.press(*VALUE)
        assert VALUE not in driver.text() and "•" * len(VALUE) in driver.text()
        await driver.press("enter")
        await driver.until(lambda: "given api: API_KEY; it goes to x.test" in driver.status())
        assert cloud.secrets.values["API_KEY"] == (VALUE, ("x.test", "y.test"))
        await driver.press("K")
        await _asked(driver, ChooseScreen, "API_KEY")
        await driver.press("j", "enter")
        await _asked(driver, ConfirmScreen, "Take TOKEN back from api?")
        await driver.press("y")
        await driver.until(lambda: cloud.secrets.values.keys() == {"API_KEY"})


async def test_a_snapshot_is_taken_and_sandboxes_are_made_from_it_and_from_one_as_it_runs(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("S")
        await _asked(driver, ChooseScreen, "copy api as it stands")
        await driver.press("enter")
        await _asked(driver, AskScreen, "Call the snapshot")
        await driver.press(*"then", "enter")
        await driver.until(lambda: "copied api: as then" in driver.status())
        await driver.press("S")
        await _asked(driver, ChooseScreen, "then")
        await driver.press("j", "j", "enter")
        await _asked(driver, AskScreen, "A sandbox from then, called")
        await driver.press("enter")
        await driver.until(lambda: "then as calm-otter" in driver.status())
        await driver.press("f")
        await _asked(driver, AskScreen, "Fork api as")
        await driver.press(*"twin", "enter")
        await driver.until(lambda: "forked api: as twin" in driver.status())
        await driver.until(lambda: [one.name for one in driver.main.fleet.all] == ["api", "calm-otter", "twin"])


async def test_it_is_kept_awake_until_what_one_says_and_given_a_budget_and_both_are_taken_back(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api")])

    async def say(key: str, title: str, words: str, line: str, told: str) -> None:
        await driver.press(key)
        await _asked(driver, AskScreen, title)
        await driver.press("ctrl+u", *words)
        await driver.until(lambda: f"$ {line}" in driver.text())
        await driver.press("enter")
        await driver.until(lambda: told in driver.status())

    async with dashboard(tmp_path, cloud) as driver:
        awake, cost = "Keep api awake until", "api is suspended when it has cost, in USD"
        await driver.press("w", *"soon")
        await driver.until(lambda: "`soon` is no point in time" in driver.text())
        await driver.press("enter", "escape")
        await say("w", awake, "job", "sbx keep-awake api --until job", "kept awake api: while a job runs")
        await say("w", awake, "2h", "sbx keep-awake api --until 2h", "kept awake api: until 20")
        await say("w", awake, "", "sbx keep-awake api --stop", "it may fall asleep again")
        await driver.press("B", *"much")
        await driver.until(lambda: "`much` is no amount in USD" in driver.text())
        await driver.press("enter", "escape")
        await say("B", cost, "2.50", "sbx budget api 2.50", "budgeted api: 2.50 USD")
        await say("B", cost, "", "sbx budget api --clear", "it had no budget")
        made = ["awake api job", "awake api time", "sleep api", "budget api 2.5", "no budget api"]
        assert cloud.done == made
        # What others ask for is seen, too.
        driver.main.services.links.take(
            context="local",
            kind=KEEP_AWAKE,
            sandbox="api",
            sandbox_id=driver.main.fleet.all[0].id,
            spec=awake_spec("job", now()).as_row(),
            owner="",
            actor="cli:other",
            is_detached=True,
        )
        await driver.until(lambda: "kept awake  while a job runs, at the latest until" in driver.text())
