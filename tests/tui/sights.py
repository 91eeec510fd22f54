"""What is to be seen: every screen of the dashboard, how to get there, and what must be true of it once it is there."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from textual.command import CommandPalette

from sbxtui.core.clients import Allowed
from sbxtui.core.errors import ControlUnavailable, QuotaExceeded
from sbxtui.core.model import Context, ContextKind, ContextName, Event, Sandbox, SandboxState
from sbxtui.identity import identity_of
from sbxtui.store.clients import Clients
from sbxtui.store.db import Store
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.screens.create import CreateScreen
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.tabs.activity import ActivityTab
from sbxtui.tui.tabs.files import FilesTab
from sbxtui.tui.tabs.jobs import JobsTab
from sbxtui.tui.tabs.logs import LogsTab
from sbxtui.tui.widgets.panes import DetailPane, FilterInput
from sbxtui.tui.widgets.rows import RowList
from tests.support import fake_ports, fake_seeing, fake_services, fake_sync
from tests.support.fake_services import FakeCloud, OnOutput, job, sandbox
from tests.tui.acting import key_of_action, to_tab
from tests.tui.driving import Driver

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ACME = Context(ContextName("acme"), ContextKind.AWS, region="eu-west-1", account_id="123456784821")
_MOST_SIGHTS = 3
# A key, or something to wait for.
Step = str | Callable[[Driver], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sight:
    """A screen: steps that lead to it from the top of the list, and what is true once it is there.

    `arrange` is called before each picture.
    """

    name: str
    steps: tuple[Step, ...]
    is_so: Callable[[Driver], object]
    arrange: Callable[[Driver], None] = lambda driver: None


@dataclass(frozen=True, slots=True)
class Scene:
    """Sights of one dashboard, one after the other."""

    name: str
    cloud: Callable[[Path], FakeCloud]
    sights: tuple[Sight, ...]


async def to_the_list(driver: Driver) -> None:
    """Up, level by level, to the top of a list of which nothing is marked or hidden."""
    fleet = driver.main.fleet
    await driver.pilot.pause()
    while not driver.is_in_list() or fleet.marks or fleet.filter.text:
        await driver.press(key_of_action("back"))
    await driver.press(key_of_action("list_first"))


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
    cloud = FakeCloud(sandboxes=every_kind(), run=_answer, running=dict(running), files_root=root / "box")
    told = [("listening on :8080", "out", "web"), ("GET / 200", "out", "web"), ("E   assert 41 == 42", "err", "test")]
    cloud.seeing.lines_there = [fake_seeing.line(text, channel=channel, job=name) for text, channel, name in told]
    cloud.seeing.history = fake_seeing.busy_hour(NOW)
    cloud.seeing.usage = cloud.seeing.history[-1]
    return cloud


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


def watched(root: Path) -> FakeCloud:
    """Agents work here, one of which has to ask before it changes anything."""
    # A process that is always there, and always the same one.
    owner = str(identity_of(1))
    store = Store.open(fake_services.home_at(root), clock=lambda: NOW - timedelta(minutes=12))
    clients = Clients(store)
    clients.connected("mcp:claude-code#4121", "claude-code", owner)
    clients.called("mcp:claude-code#4121", "sandbox_exec", "ok", 41)
    clients.connected("mcp:cursor#977", "cursor", owner, Allowed.ASKING)
    clients.called("mcp:cursor#977", "sandbox_create", "denied_by_policy", 3)
    words = "name=api-tests confirm=true"
    clients.approvals.ask("mcp:cursor#977", owner, "sandbox_remove", words, wait_s=757)
    store.close()
    return busy(root)


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


def is_over(kind: type[object], words: str) -> Callable[[Driver], bool]:
    return lambda driver: isinstance(driver.app.screen, kind) and words in driver.text()


async def after_saying(driver: Driver) -> None:
    """Something was said, and is gone: a dialog would keep it below itself."""
    await driver.until(driver.toasts)
    await driver.until(lambda: has_no_toasts(driver))


async def decided(driver: Driver) -> None:
    """There is something to decide on."""
    await driver.until(lambda: driver.main.query_one("#sync-items", RowList).rows)


async def listed(driver: Driver) -> None:
    """The files are there."""
    await driver.until(lambda: driver.main.query_one("#tree", RowList).rows)


def has_no_toasts(driver: Driver) -> bool:
    """What was said goes by itself after a while: here, before the picture."""
    driver.app.clear_notifications()
    return not driver.app.screen.query("Toast")


def _zoomed(driver: Driver) -> bool:
    # All columns are there: what processors did of late comes when it is read.
    return driver.main.has_class("-zoomed") and "1 Overview" not in driver.text() and bool(driver.main.fleet.cpu)


def _followed(driver: Driver) -> bool:
    # Where there is room, the list is beside the output, with all that it tells.
    text = driver.text()
    return "said by" in text and ("› j2" not in text or "http.server" in text)


def _pinned(driver: Driver) -> bool:
    return driver.main.query_one(DetailPane).pinned == "overview" and "pinned" in driver.text()


async def looked_up(driver: Driver) -> None:
    """The record of the selected sandbox is there: it would come below a dialog, or not, as it comes."""
    await driver.until(lambda: driver.main.record)


TO_API = ("j", "j", looked_up)
ON_THE_LIST = (
    Sight("overview", ("j", "space"), lambda driver: driver.main.record and len(driver.main.fleet.marks) == 1),
    Sight("create", ("n", *"lab"), is_over(CreateScreen, "$ sbx create lab")),
    Sight("confirm", (*TO_API, "d"), is_over(ConfirmScreen, "ends `pytest -q`")),
    Sight("confirm_many", ("asterisk", "d", "y", "4"), is_over(ConfirmScreen, "Type 5")),
    Sight("help", ("question_mark",), is_over(PageScreen, "Help")),
    Sight("palette", ("colon", *"pau"), is_over(CommandPalette, "sbx stop")),
    Sight("copy", (*TO_API, "y"), is_over(ChooseScreen, "endpoint")),
    Sight("rename", (*TO_API, "R"), is_over(AskScreen, "Rename api-tests")),
    Sight("record", (*TO_API, "i"), is_over(PageScreen, "api-tests")),
    Sight("context", ("c",), is_over(ChooseScreen, "Look at which context?")),
    Sight(
        "filter",
        ("slash", *"state:run"),
        lambda driver: driver.main.query_one(FilterInput).has_focus and len(driver.main.fleet.rows) == 3,
    ),
    Sight("no_match", ("slash", *"zzz", "enter"), lambda driver: "none of 6 matches" in driver.text()),
    Sight("zoom", ("z",), _zoomed),
    Sight("pinned", ("z", *TO_API, "P", *to_tab("shell")), _pinned),
)
IN_THE_TABS = (
    Sight(
        "run",
        (*TO_API, "e", *"ls", "enter", *"mkae", "enter"),
        lambda driver: [block.words[:8] for block in driver.output.transcript.blocks] == ["exit 0 ·", "exit 127"],
    ),
    Sight("logs", (*TO_API, *to_tab("logs")), lambda driver: driver.main.query_one(LogsTab).book.count == 3),
    Sight("metrics", (*TO_API, *to_tab("metrics")), lambda driver: "100.0 % of 4" in driver.text()),
    Sight("jobs", (*TO_API, *to_tab("jobs")), lambda driver: len(driver.main.query_one(JobsTab).jobs) == 2),
    Sight("job", (*TO_API, *to_tab("jobs"), "enter"), _followed),
    Sight(
        "files",
        (*TO_API, *to_tab("files")),
        lambda driver: driver.main.query_one(FilesTab).listing and "notes.txt" in driver.text(),
    ),
    Sight(
        "file",
        (*TO_API, *to_tab("files"), listed, "enter", "j", "enter"),
        lambda driver: "The answer." in driver.text() and "esc closes" in driver.text(),
    ),
    Sight(
        "activity",
        (*TO_API, *to_tab("activity")),
        lambda driver: "4 changes" in driver.text() or "3 changes" in driver.text(),
        changes,
    ),
)


def _scenes(name: str, sights: tuple[Sight, ...]) -> Iterator[Scene]:
    """Few enough for one test each."""
    for at in range(0, len(sights), _MOST_SIGHTS):
        yield Scene(f"{name}-{at // _MOST_SIGHTS + 1}", busy, sights[at : at + _MOST_SIGHTS])


SCENES = (
    *_scenes("list", ON_THE_LIST),
    *_scenes("tabs", IN_THE_TABS),
    Scene(
        "synced",
        synced,
        (
            Sight("sync", (*TO_API, *to_tab("sync")), lambda driver: "package.json" in driver.text()),
            Sight(
                "sync_diff",
                (*TO_API, *to_tab("sync"), decided, "j", "enter"),
                lambda driver: "return 42" in driver.text() and "esc closes" in driver.text(),
            ),
        ),
    ),
    Scene(
        "served",
        served,
        (Sight("ports", (*TO_API, *to_tab("ports")), lambda driver: "jupyter-lab" in driver.text()),),
    ),
    Scene(
        "account",
        account,
        (
            Sight(
                "account",
                (),
                lambda driver: driver.main.record and "…4821" in driver.text() and "1234567" not in driver.text(),
            ),
        ),
    ),
    Scene(
        "refusing",
        refusing,
        (
            Sight(
                "failed",
                (*TO_API, "p", after_saying),
                lambda driver: "may run 2 sandboxes" in driver.text() and driver.main.fleet.failures,
                lambda driver: driver.main.notify("stop: it may not (o explains)", severity="error", timeout=600),
            ),
            Sight("explain", (*TO_API, "o"), is_over(PageScreen, "ask AWS for more")),
            Sight("messages", (looked_up, "exclamation_mark"), is_over(PageScreen, "may run 2 sandboxes")),
        ),
    ),
    Scene("watched", watched, (Sight("agents", ("M",), lambda driver: "asks for sandbox_remove" in driver.text()),)),
    Scene("empty", empty, (Sight("first_run", (), lambda driver: "no sandboxes yet" in driver.text()),)),
    Scene("away", away, (Sight("unreachable", (), lambda driver: driver.text().count("? unknown") >= 3),)),
)
