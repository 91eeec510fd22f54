"""What every screen looks like, small and large, dark and light. Each picture stands beside what must be true of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from pytest_textual_snapshot import SVGImageExtension, normalize_svg  # type: ignore[import-untyped]  # it has none
from syrupy.assertion import SnapshotAssertion
from textual.command import CommandPalette
from textual.widgets import Input

from sbxtui.core.errors import ControlUnavailable, QuotaExceeded
from sbxtui.core.model import Context, ContextKind, ContextName, Event, Sandbox, SandboxState
from sbxtui.tui import clock
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.screens.create import CreateScreen
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.tabs.activity import ActivityTab
from sbxtui.tui.tabs.files import FilesTab
from sbxtui.tui.tabs.jobs import JobsTab
from sbxtui.tui.widgets.panes import DetailPane, FilterInput
from sbxtui.tui.widgets.rows import RowList
from tests.support import fake_ports, fake_services, fake_sync
from tests.support.fake_services import FakeCloud, OnOutput, job, sandbox
from tests.tui.acting import key_of_action
from tests.tui.driving import Driver, dashboard

pytestmark = pytest.mark.long

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SIZES = ((80, 24), (160, 48))
THEMES = ("dark", "light")
ACME = Context(ContextName("acme"), ContextKind.AWS, region="eu-west-1", account_id="123456784821")


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Noon on the first of March, in UTC."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setattr(fake_services, "now", lambda: NOW)
    monkeypatch.setattr(fake_sync, "now", lambda: NOW)
    monkeypatch.setattr(fake_ports, "now", lambda: NOW)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def every_kind(context: ContextName = fake_services.LOCAL.name) -> list[Sandbox]:
    state = SandboxState
    return [
        sandbox("api-tests", context=context, created_at=NOW - timedelta(minutes=14), labels={"team": "web"}),
        sandbox(
            "agent-7f3",
            context=context,
            created_at=NOW - timedelta(minutes=3),
            facts={"isolation": "process — NOT isolated", "memory_mib": 4096},
        ),
        sandbox("etl-nightly", state.SUSPENDED, context=context, created_at=NOW - timedelta(hours=26)),
        sandbox(
            "fuzz-12",
            state.TERMINATED,
            context=context,
            created_at=NOW - timedelta(hours=2),
            state_reason="out of memory",
        ),
        sandbox(
            "warm-1", state.PENDING, context=context, created_at=NOW - timedelta(seconds=2), state_reason="launching"
        ),
        sandbox("", context=context, created_at=NOW - timedelta(days=2)),
    ]


def busy(root: Path) -> FakeCloud:
    """Sandboxes of every kind, one of which has jobs, files and commands."""
    work = root / "box" / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "app.py").write_text('def main() -> int:\n    """The answer."""\n    return 42\n')
    (work / "notes.txt").write_text("first\nsecond\n")
    for path in (work / "src" / "app.py", work / "notes.txt", work / "src", work):
        os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    running = {
        "api-tests": [
            job("api-tests", "python -m http.server 8080"),
            job("api-tests", "pytest -q", id="j2", label="ci"),
        ]
    }
    return FakeCloud(sandboxes=every_kind(), run=_answer, running=dict(running), files_root=root / "box")


async def _answer(line: str, on_output: OnOutput) -> int:
    if line == "ls":
        await on_output("out", b"notes.txt\nsrc\n")
        return 0
    await on_output("err", f"sh: 1: {line}: not found\n".encode())
    return 127


def synced(root: Path) -> FakeCloud:
    """One that is being synced: much is still on its way, and there is something to decide on."""
    cloud = busy(root)
    said = {"pending": 1_300, "pushed": 1_100, "sent_bytes": 13 << 20, "conflict_count": 1, "guest_changes": 3}
    problems = [{"path": "run.sock", "code": "not_synced"}]
    cloud.desk.view = fake_sync.sync_view("seeding", entries=2_400, problem_count=1, problems=problems, **said)
    return cloud


def served(root: Path) -> FakeCloud:
    """One in which two servers listen, and of which two ports are forwarded; nothing listens behind one of them."""
    cloud = busy(root)
    cloud.ports.found = [fake_ports.open_port(5173, "node"), fake_ports.open_port(8888, "jupyter-lab", age_s=7_200)]
    words = "nothing listens on port 8000 in the sandbox"
    cloud.ports.views = (fake_ports.forward_view(5173), fake_ports.forward_view(8000, 8001, last_error=words, open=0))
    return cloud


def account(root: Path) -> FakeCloud:
    return FakeCloud(ACME, every_kind(ACME.name), isolation="MicroVM — own kernel")


def empty(root: Path) -> FakeCloud:
    return FakeCloud()


def away(root: Path) -> FakeCloud:
    error = ControlUnavailable(
        "no answer from `local`", hint="`sbx local status` tells whether it runs; `sbx doctor` more"
    )
    return FakeCloud(sandboxes=every_kind(), error=error)


def refusing(root: Path) -> FakeCloud:
    error = QuotaExceeded(
        "the account may run 2 sandboxes at a time", hint="remove one, or ask AWS for more", details={"quota": "L-1234"}
    )
    return FakeCloud(sandboxes=every_kind(), change_error=error)


def changes(driver: Driver) -> None:
    told = [
        Event(1, NOW - timedelta(minutes=9), "local", "sandbox.reserved", "api-tests", "cli:you", {}),
        Event(
            2, NOW - timedelta(minutes=9) + timedelta(seconds=2), "local", "sandbox.tracked", "api-tests", "cli:you", {}
        ),
        Event(3, NOW - timedelta(minutes=5), "local", "files.write", "api-tests", "mcp:claude", {"path": "/work/a b"}),
        Event(4, NOW, "local", "sandbox.suspend.failed", "api-tests", "tui:you", {"error": "no answer", "took_s": 3.2}),
    ]
    driver.main.query_one(ActivityTab).post_message(ActivityTab.Arrived(told))


@dataclass(frozen=True, slots=True)
class Sight:
    """A screen: keys that lead to it, and what is true once it is there. `$tab` goes into that tab, `SAID` is no key.

    `arrange` is called before each picture.
    """

    name: str
    cloud: Callable[[Path], FakeCloud]
    keys: tuple[str, ...]
    is_so: Callable[[Driver], object]
    arrange: Callable[[Driver], None] = lambda driver: None


def is_over(kind: type[object], words: str) -> Callable[[Driver], bool]:
    return lambda driver: isinstance(driver.app.screen, kind) and words in driver.text()


def _pinned(driver: Driver) -> bool:
    return driver.main.query_one(DetailPane).pinned == "overview" and "pinned" in driver.text()


TO_API = ("g", "j", "j")
# No key: wait until something was said, and send it away.
SAID = "said"
# No key: wait until there is something to decide on.
ROWS = "rows"
SIGHTS = (
    Sight(
        "overview", busy, ("g", "j", "space"), lambda driver: driver.main.record and len(driver.main.fleet.marks) == 1
    ),
    Sight(
        "run",
        busy,
        (*TO_API, "e", *"ls", "enter", *"mkae", "enter"),
        lambda driver: [block.words[:8] for block in driver.output.transcript.blocks] == ["exit 0 ·", "exit 127"],
    ),
    Sight("jobs", busy, (*TO_API, "$jobs"), lambda driver: len(driver.main.query_one(JobsTab).jobs) == 2),
    Sight(
        "files",
        busy,
        (*TO_API, "$files"),
        lambda driver: driver.main.query_one(FilesTab).listing and "notes.txt" in driver.text(),
    ),
    Sight("sync", synced, (*TO_API, "$sync"), lambda driver: "package.json" in driver.text()),
    Sight(
        "sync_diff",
        synced,
        (*TO_API, "$sync", ROWS, "j", "enter"),
        lambda driver: "return 42" in driver.text() and "esc closes" in driver.text(),
    ),
    Sight("ports", served, (*TO_API, "$ports"), lambda driver: "jupyter-lab" in driver.text()),
    Sight(
        "activity",
        busy,
        (*TO_API, "$activity"),
        lambda driver: "4 changes" in driver.text() or "3 changes" in driver.text(),
        changes,
    ),
    Sight(
        "account",
        account,
        ("g",),
        lambda driver: driver.main.record and "…4821" in driver.text() and "1234567" not in driver.text(),
    ),
    Sight("create", busy, ("n", *"lab"), is_over(CreateScreen, "$ sbx create lab")),
    Sight("confirm", busy, (*TO_API, "d"), is_over(ConfirmScreen, "ends `pytest -q`")),
    Sight("confirm_many", busy, ("asterisk", "d", "y", "4"), is_over(ConfirmScreen, "Type 5")),
    Sight("help", busy, ("question_mark",), is_over(PageScreen, "Help")),
    Sight(
        "palette",
        busy,
        ("colon", *"pau"),
        lambda driver: isinstance(driver.app.screen, CommandPalette) and "sbx stop" in driver.text(),
    ),
    Sight("copy", busy, (*TO_API, "y"), is_over(ChooseScreen, "endpoint")),
    Sight(
        "failed",
        refusing,
        (*TO_API, "p", SAID),
        lambda driver: "may run 2 sandboxes" in driver.text() and driver.main.fleet.failures,
        lambda driver: driver.main.notify("stop: it may not (o explains)", severity="error", timeout=60),
    ),
    Sight("explain", refusing, (*TO_API, "p", SAID, "o"), is_over(PageScreen, "ask AWS for more")),
    Sight(
        "messages", refusing, (*TO_API, "p", SAID, "s", "exclamation_mark"), is_over(PageScreen, "may run 2 sandboxes")
    ),
    Sight("first_run", empty, (), lambda driver: "no sandboxes yet" in driver.text()),
    Sight("unreachable", away, ("g",), lambda driver: driver.text().count("? unknown") >= 3),
    Sight(
        "filter",
        busy,
        ("slash", *"state:run"),
        lambda driver: driver.main.query_one(FilterInput).has_focus and len(driver.main.fleet.rows) == 3,
    ),
    Sight("no_match", busy, ("slash", *"zzz", "enter"), lambda driver: "none of 6 matches" in driver.text()),
    Sight(
        "zoom", busy, ("g", "z"), lambda driver: driver.main.has_class("-zoomed") and "1 Overview" not in driver.text()
    ),
    Sight("pinned", busy, (*TO_API, "P", "$shell"), _pinned),
)


@pytest.mark.parametrize("sight", SIGHTS, ids=lambda sight: sight.name)
async def test_the_screen(sight: Sight, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    pictures = snapshot.use_extension(SVGImageExtension)
    async with dashboard(tmp_path, sight.cloud(tmp_path), size=SIZES[0]) as driver:
        for key in sight.keys:
            if key == SAID:
                # A dialog would keep what is said below it.
                await driver.until(driver.toasts)
                await driver.until(lambda: has_no_toasts(driver))
                continue
            if key == ROWS:
                await driver.until(lambda: driver.main.query_one("#sync-items", RowList).rows)
                continue
            go = (key_of_action(f"tab_{key[1:]}"), "tab") if key.startswith("$") else (key,)
            await driver.press(*go)
        different = []
        for (width, height), theme in product(SIZES, THEMES):
            await driver.pilot.resize_terminal(width, height)
            driver.app.theme = f"sbx-{theme}"
            await driver.until(lambda: has_no_toasts(driver))
            sight.arrange(driver)
            await driver.until(lambda: sight.is_so(driver))
            name = f"{width}x{height}-{theme}"
            if pictures(name=name) != await picture(driver):
                different.append(name)
    assert different == [], "looks different; --snapshot-update draws them anew: then look at them"


def has_no_toasts(driver: Driver) -> bool:
    """What was said goes by itself after a while: here, before the picture."""
    driver.app.clear_notifications()
    return not driver.app.screen.query("Toast")


async def picture(driver: Driver) -> str:
    """The screen as an SVG, once it has come to rest."""
    for line in driver.app.screen.query(Input):
        line.cursor_blink = False
    before, now = "", driver.app.export_screenshot()
    async with asyncio.timeout(driver.deadline_s):
        while normalize_svg(now) != normalize_svg(before):
            await driver.pilot.pause()
            before, now = now, driver.app.export_screenshot()
    return now
