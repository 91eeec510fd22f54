"""Every action, pressed as a person would."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

from sbxtui.core.errors import ControlUnavailable, QuotaExceeded, StoreTooNew
from sbxtui.core.isolation import Shortfall
from sbxtui.core.jobs import JobState
from sbxtui.core.model import Context, ContextKind, ContextName, SandboxId, SandboxState
from sbxtui.store.links import Links
from sbxtui.tui import clock
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.screens.create import CreateScreen, Ground
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.widgets import bars
from tests.support.fake_services import FakeCloud, job, sandbox
from tests.tui.driving import dashboard

RUNNING, SUSPENDED = SandboxState.RUNNING, SandboxState.SUSPENDED


def three() -> FakeCloud:
    return FakeCloud(sandboxes=[sandbox("api"), sandbox("etl", SUSPENDED), sandbox("web")])


async def test_cached_rows_are_in_the_first_frame_with_their_age(tmp_path: Path) -> None:
    cloud = three()
    cloud.gate = asyncio.Event()
    async with dashboard(tmp_path, cloud) as driver:
        assert "api" in driver.text()
        assert "as of 3m ago" in driver.text()
        assert all(driver.main.fleet.is_dim(one) for one in driver.main.fleet.rows)
        cloud.gate.set()
        await driver.until(lambda: " live " in driver.text())
        assert not any(driver.main.fleet.is_dim(one) for one in driver.main.fleet.rows)


async def test_the_header_says_context_isolation_and_counts_as_they_are_now(tmp_path: Path) -> None:
    cloud = three()
    async with dashboard(tmp_path, cloud) as driver:

        async def header_tells(words: str) -> None:
            await driver.press("r")
            await driver.until(lambda: words in driver.text().splitlines()[0])

        await header_tells("local  namespaces — shared kernel  2 running  1 suspended")
        # The local cloud was started anew, with another runtime.
        cloud.isolation = "gVisor (user-space kernel)"
        await header_tells("gVisor")
        cloud.isolation = "process — NOT isolated"
        await header_tells("process — NOT isolated")
        cloud.isolation = "namespaces (bubblewrap) — shared host kernel"
        cloud.sandboxes = cloud.sandboxes[:2]
        await driver.pilot.resize_terminal(80, 24)
        # Counts go before asides.
        await header_tells("namespaces — shared host kernel  1 running  1 suspended")
        cloud.shortfall = Shortfall("gvisor: runsc 1 failed 4 of 8 starts", is_fault=True)
        await driver.press("r")
        await driver.until(lambda: "weaker" in driver.text())
        await driver.press("o")
        await driver.until(lambda: "Why new sandboxes are not isolated more strongly" in driver.text())


async def test_an_account_is_told_with_its_least_price_and_the_end_of_its_machines(tmp_path: Path) -> None:
    acme = Context(ContextName("acme"), ContextKind.AWS, region="us-east-1", account_id="123456784821")
    cloud = FakeCloud(acme, [sandbox("api", context=acme.name), sandbox("etl", SUSPENDED)], isolation="MicroVM")
    async with dashboard(tmp_path, cloud, size=(120, 24)) as driver:
        first = driver.text().splitlines()[0]
        assert "acme …4821 us-east-1  MicroVM  1 running  1 suspended  at least $0.13/h" in first
        assert "$0.25 so far  each ends after 8h" in first
        assert "123456784821" not in driver.text()
        await driver.pilot.resize_terminal(60, 24)
        await driver.until(lambda: "$" not in driver.text().splitlines()[0])
        assert "1 running  1 suspended" in driver.text().splitlines()[0]


async def test_the_isolation_of_the_context_is_never_told_as_that_of_a_sandbox(tmp_path: Path) -> None:
    old = sandbox("old", facts={"isolation": "process — NOT isolated"})
    cloud = FakeCloud(sandboxes=[old, sandbox("untold")], isolation="gVisor (user-space kernel)")
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("g")
        await driver.until(lambda: "isolation   process — NOT isolated" in driver.text())
        await driver.press("j")
        await driver.until(lambda: "isolation   unknown" in driver.text())
        assert driver.text().count("gVisor") == 1


async def test_pausing_acts_on_the_selected_one_or_on_marked_ones_each_by_its_own_state(tmp_path: Path) -> None:
    cloud = three()
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("g", "p")
        await driver.until(lambda: cloud.done == ["suspend api"])
        await driver.until(lambda: "kept until it is removed" in driver.status())
        await driver.until(lambda: [one.state for one in driver.main.fleet.all if one.name == "api"] == [SUSPENDED])
        await driver.press("p")
        await driver.until(lambda: cloud.done == ["suspend api", "resume api"])
        await driver.until(lambda: [one.state for one in driver.main.fleet.all if one.name == "api"] == [RUNNING])
        await driver.press("asterisk", "p")
        await driver.until(lambda: len(cloud.done) == 5)
        assert sorted(cloud.done[2:]) == ["resume etl", "suspend api", "suspend web"]
        assert driver.main.fleet.marks == set()


async def test_removing_asks_with_the_focus_on_cancel_and_is_told_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = three()
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("g", "d")
        assert isinstance(driver.app.screen, ConfirmScreen)
        assert "Remove `api`?" in driver.text()
        assert "Memory, disk and running commands are lost" in driver.text()
        await driver.press("enter")
        await driver.until(driver.is_in_list)
        assert cloud.done == []
        await driver.press("g", "d", "y")
        await driver.until(lambda: "removed api" in driver.status())
        await driver.until(lambda: [one.name for one in driver.main.fleet.all] == ["etl", "web"])
        later = monotonic() + 60
        monkeypatch.setattr(bars, "monotonic", lambda: later)
        await driver.until(lambda: driver.status().strip() == "")
        assert "removed api" in driver.main.notes.text()


async def test_removing_names_the_commands_it_would_end(tmp_path: Path) -> None:
    cloud = three()
    over = job("web", "make", state=JobState.EXITED)
    many = [job("web", f"worker {number}") for number in range(7)]
    cloud.running = {"api": [job("api", "python train.py\x1b[2J")], "web": [over, *many], "etl": None}
    async with dashboard(tmp_path, cloud, size=(100, 24)) as driver:
        link_with(driver.main.services.links, "sync", guest_changes=3, pending=1)
        link_with(driver.main.services.links, "forward:8001")
        await driver.press("g", "d")
        await driver.until(lambda: "ends `python train.py" in driver.text())
        assert "loses 3 changes: `sbx sync pull api` takes them" in driver.text()
        assert "ends its sync before 1 change of here got there" in driver.text()
        assert "ends what is forwarded to :8001" in driver.text()
        assert "(2m)" in driver.text() and "\x1b" not in driver.text()
        await driver.press("escape", "asterisk", "d")
        await driver.until(lambda: "2 more running commands" in driver.text())
        assert "worker 6" not in driver.text() and "worker 1" not in driver.text() and "make" not in driver.text()
        await driver.press(*["down"] * 6)
        await driver.until(lambda: "worker 6" in driver.text())
        assert "`etl` could not be asked" in driver.text()
        await driver.press("y")
        await driver.until(lambda: len(cloud.done) == 3)


def link_with(links: Links, kind: str, **status: object) -> None:
    """A link of `api` that says something of itself."""
    names = {"context": "local", "kind": kind, "sandbox": "api", "sandbox_id": SandboxId("mvm-api")}
    links.say(links.take(**names, spec={}, owner="", actor="cli:you"), status)  # type: ignore[arg-type]  # as above


async def test_more_than_three_need_their_typed_count(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox(f"s{number}") for number in range(4)])
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("asterisk", "d")
        assert all(f"s{number}" in driver.text() for number in range(4))
        await driver.press("y", "3", "enter")
        assert isinstance(driver.app.screen, ConfirmScreen)
        await driver.press("backspace", "4", "enter")
        await driver.until(lambda: len(cloud.done) == 4)


async def test_what_has_no_name_here_is_not_removed(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("")])
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("d")
        assert driver.app.screen is driver.main
        assert any("adopt" in words for words in driver.toasts())


async def test_a_name_that_means_another_sandbox_by_now_is_left_alone(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("web")])
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("d")
        # Somebody removed it while the question stood; `web` is now a prefix of another one.
        cloud.sandboxes = [sandbox("web-2")]
        await driver.press("y")
        await driver.until(lambda: "remove web failed" in driver.status())
        assert cloud.done == []
        assert [one.name for one in cloud.sandboxes] == ["web-2"]


async def test_a_failed_change_is_told_and_explained(tmp_path: Path) -> None:
    cloud = three()
    cloud.change_error = QuotaExceeded("the account may run 2 sandboxes", hint="end one, or ask for a higher quota")
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("g", "p")
        await driver.until(lambda: any("the account may run 2" in words for words in driver.toasts()))
        await driver.press("o")
        assert isinstance(driver.app.screen, PageScreen)
        assert "What to do: end one" in driver.text()
        await driver.press("escape")
        await driver.until(driver.is_in_list)


async def test_creating_asks_for_name_and_size_and_says_the_network(tmp_path: Path) -> None:
    cloud = three()
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("n", *"lab")
        assert "none: it reaches nothing outside itself" in driver.text()
        assert "$ sbx create lab --memory 2048" in driver.text()
        await driver.press("tab", "right", "enter")
        await driver.until(lambda: "created lab" in driver.status())
        assert "created lab" in driver.main.notes.text()
        assert [(name, options.memory_mib) for name, options in cloud.created] == [("lab", 4096)]
        await driver.until(lambda: driver.main.fleet.selected and driver.main.fleet.selected.name == "lab")


async def test_a_launch_says_what_it_does_leaves_the_list_usable_and_is_named_when_quitting(tmp_path: Path) -> None:
    cloud = three()
    async with dashboard(tmp_path, cloud) as driver:
        cloud.gate = asyncio.Event()
        await driver.press("n", "enter")
        await driver.until(lambda: "launching calm-otter" in driver.status())
        await driver.press("G")
        assert driver.main.fleet.cursor == 2
        await driver.press("q")
        assert isinstance(driver.app.screen, ConfirmScreen)
        assert "launching calm-otter" in driver.text()
        await driver.press("escape")
        assert driver.app.return_code is None
        cloud.gate.set()
        await driver.until(lambda: "created calm-otter" in driver.status())


async def test_a_name_that_cannot_be_is_said_while_typing_and_makes_nothing(tmp_path: Path) -> None:
    cloud = three()
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("n", *"Not ok", "enter")
        assert isinstance(driver.app.screen, CreateScreen)
        assert "cannot name a sandbox" in driver.text()
        await driver.press("escape")
        assert cloud.created == []


async def test_without_a_local_cloud_a_launch_says_that_it_starts_one(tmp_path: Path) -> None:
    cloud = FakeCloud(isolation="")
    async with dashboard(tmp_path, cloud) as driver:
        assert "local cloud not running yet" in driver.text()
        cloud.gate = asyncio.Event()
        await driver.press("n", "enter")
        await driver.until(lambda: "starting the local cloud" in driver.status())
        cloud.gate.set()


async def test_the_record_is_shown_as_json_without_the_launch_environment(tmp_path: Path) -> None:
    facts = {"network": "none", "launch": {"env": {"TOKEN": "hunter2"}}}
    cloud = FakeCloud(sandboxes=[sandbox("api", facts=facts)])
    async with dashboard(tmp_path, cloud, size=(100, 50)) as driver:
        await driver.press("i")
        await driver.until(lambda: isinstance(driver.app.screen, PageScreen))
        await driver.until(lambda: '"image_version": "1.0"' in driver.text())
        screen = driver.app.screen
        assert isinstance(screen, PageScreen) and "hunter2" not in screen.text
        document = json.loads(screen.text)
        assert (document["name"], document["network"]) == ("api", "none")
        assert document["record"]["state_reason"] is document["record"]["max_duration_s"] is None


async def test_the_form_says_the_isolation_as_soon_as_it_is_known(tmp_path: Path) -> None:
    cloud = FakeCloud(isolation="")
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("n")
        await driver.until(lambda: "told once the local cloud runs" in driver.text())
        cloud.isolation = "gVisor (user-space kernel)"
        driver.main.services.watch.look_now()
        await driver.until(lambda: "gVisor" in driver.text() and "told once" not in driver.text())


async def test_what_is_told_never_lies_over_a_dialog_and_is_told_after_it(tmp_path: Path) -> None:
    async with dashboard(tmp_path, three(), size=(100, 50)) as driver:
        await driver.press("o")
        await driver.until(lambda: "nothing failed so far" in driver.text())
        await driver.press("i")
        await driver.until(lambda: '"image_version": "1.0"' in driver.text())
        await driver.until(lambda: not any(toast.display for toast in driver.app.screen.query("Toast")))
        await driver.press("y")
        await driver.until(lambda: "copied · esc closes" in driver.text() and driver.app.held)
        assert "copied the page" not in driver.text()
        await driver.press("escape")
        await driver.until(lambda: "copied the page" in driver.text())


async def test_the_overview_tells_what_is_known(tmp_path: Path) -> None:
    cloud = FakeCloud(sandboxes=[sandbox("api", labels={"team": "web"})])
    async with dashboard(tmp_path, cloud, size=(140, 40)) as driver:
        text = driver.text()
        for fact in ("mvm-api", "2 GiB", "none", "team=web", "127.0.0.1:40001", "sbx-base-2048"):
            assert fact in text


async def test_the_overview_ages_with_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dashboard(tmp_path, FakeCloud(sandboxes=[sandbox("api")]), size=(140, 40)) as driver:
        assert "1h ago" in driver.text()
        layouts: list[object] = []
        driver.main.screen_layout_refresh_signal.subscribe(driver.main, layouts.append, immediate=True)
        begun = clock.now()
        for hours in range(2, 12):
            layouts.clear()
            monkeypatch.setattr(clock, "now", lambda: begun + timedelta(hours=hours))  # noqa: B023  # read in this turn
            await driver.until(lambda: f"{hours + 1}h ago" in driver.text())  # noqa: B023
            if not layouts:
                return
        # Of the first turns one may meet what still comes of the start.
        pytest.fail("laying everything out anew each second is most of what a dashboard at rest would cost")


async def test_refresh_looks_at_once_and_shows_what_changed_elsewhere(tmp_path: Path) -> None:
    cloud = three()
    async with dashboard(tmp_path, cloud) as driver:
        cloud.sandboxes.append(sandbox("zoo"))
        await driver.press("r")
        await driver.until(lambda: "zoo" in driver.text())
        cloud.sandboxes[0] = replace(cloud.sandboxes[0], state=SandboxState.TERMINATED, state_reason="out of memory")
        await driver.press("r")
        await driver.until(lambda: "x ended" in driver.text())
        assert "out of memory" in driver.text()


async def test_an_unreachable_control_plane_shows_unknown_and_never_gone(tmp_path: Path) -> None:
    cloud = three()
    cloud.error = ControlUnavailable("no answer from `local`", hint="`sbx doctor`")
    async with dashboard(tmp_path, cloud) as driver:
        await driver.until(lambda: "? unknown" in driver.text())
        assert driver.text().count("? unknown") >= 3
        assert "was running 3m ago" in driver.text()
        assert "unreachable" in driver.text()
        await driver.press("o")
        assert "`sbx doctor`" in driver.text()


async def test_three_nothings_are_three_different_pages(tmp_path: Path) -> None:
    async with dashboard(tmp_path / "a", FakeCloud()) as driver:
        await driver.until(lambda: "no sandboxes yet" in driver.text())
        assert "sbx create" in driver.text()
    async with dashboard(tmp_path / "b", three()) as driver:
        await driver.press("slash", *"zzz")
        await driver.until(lambda: "none of 3 matches `zzz`" in driver.text())
    cloud = FakeCloud(error=ControlUnavailable("no answer from `acme`", hint="check --region"))
    async with dashboard(tmp_path / "c", cloud) as driver:
        await driver.until(lambda: "cannot be asked" in driver.text())
        assert "check --region" in driver.text()


async def test_a_store_that_cannot_be_opened_is_said_and_tried_again(tmp_path: Path) -> None:
    cloud = three()
    cloud.opening_error = StoreTooNew("the store was written by a newer sbx", hint="upgrade sbx")
    async with dashboard(tmp_path, cloud) as driver:
        await driver.until(lambda: "sbx cannot open its store" in driver.text())
        assert "upgrade sbx" in driver.text()
        cloud.opening_error = None
        await driver.press("r")
        await driver.until(lambda: " live " in driver.text())


async def test_an_empty_list_names_no_key_that_needs_one_says_why_and_is_left_by_q_and_not_by_ctrl_c(
    tmp_path: Path,
) -> None:
    async with dashboard(tmp_path, FakeCloud()) as driver:
        footer = driver.text().splitlines()[-1]
        assert "n new" in footer and "q quit" in footer
        assert not [key for key in ("e shell", "p pause", "d remove", "/ filter", "enter detail") if key in footer]
        await driver.press("d", "p")
        await driver.until(lambda: len(driver.toasts()) == 2)
        assert driver.toasts() == [f"no sandbox is selected: nothing to {what}" for what in ("remove", "pause")]
        await driver.press("ctrl+c")
        assert driver.app.return_code is None
        assert any("q quits" in words for words in driver.toasts())
        await driver.press("q")
        await driver.until(lambda: driver.app.return_code == 0)


async def test_a_dialog_may_be_told_more_before_it_is_drawn(tmp_path: Path) -> None:
    cloud = three()
    # Every look tells it anew.
    cloud.isolation = "told at last"
    async with dashboard(tmp_path, cloud) as driver:
        asking = ConfirmScreen("Remove?", ["api"], "lost", "remove")
        shown = driver.app.push_screen(asking)
        asking.tell_more([["2 jobs"]])
        await shown
        await driver.until(lambda: "2 jobs" in driver.text())
        making = CreateScreen(
            Ground(Context(ContextName("local"), ContextKind.LOCAL), "", image="", memory_mib=0, egress_connector="")
        )
        shown = driver.app.push_screen(making)
        making.tell_isolation("told at last")
        await shown
        await driver.until(lambda: "told at last" in driver.text())
