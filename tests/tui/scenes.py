"""Every action of the dashboard in a scene: where its key works, and what is to be seen of what it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from textual.command import CommandPalette

from sbxtui.core.errors import QuotaExceeded, StoreTooNew
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.tui.logbook import Logbook
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.choose import ChooseScreen
from sbxtui.tui.screens.clients import ClientsScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.screens.create import CreateScreen
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.tabs.activity import ActivityTab
from sbxtui.tui.tabs.files import FilesTab
from sbxtui.tui.tabs.jobs import JobsTab
from sbxtui.tui.tabs.logs import LogsTab
from sbxtui.tui.tabs.registry import TABS
from sbxtui.tui.widgets.fileview import FileView
from sbxtui.tui.widgets.lineinput import LineInput
from sbxtui.tui.widgets.panes import DetailPane, FilterInput
from sbxtui.tui.widgets.rows import RowList
from tests.support.fake_seeing import line as log_line
from tests.support.fake_services import FakeCloud, OnOutput, home_at, job, sandbox
from tests.tui.acting import Act, Scene, Seen, has_focus, is_asked, is_copied, key_of_action, to_tab
from tests.tui.driving import Driver
from tests.tui.portscene import on_ports
from tests.tui.scene_of_sync import on_a_sync

SCREENFULS = 60


def current_tab(driver: Driver) -> str:
    return driver.main.query_one(DetailPane).current


def on_the_list(root: Path) -> Scene:
    cloud = FakeCloud(sandboxes=[sandbox(f"s{number:02}") for number in range(SCREENFULS)])

    def at(row: int) -> Seen:
        return lambda driver: driver.main.fleet.cursor == row

    return Scene(
        cloud,
        (
            Act("list_last", at(SCREENFULS - 1)),
            Act("list_up", at(SCREENFULS - 2)),
            Act("list_first", at(0)),
            Act("list_down", at(1)),
            Act("list_page_down", lambda driver: driver.main.fleet.cursor > 3),
            Act("list_page_up", at(1)),
            Act("mark", lambda driver: driver.main.fleet.marks == {"mvm-s01"}),
            Act("mark_all", lambda driver: len(driver.main.fleet.marks) == SCREENFULS),
            Act("back", lambda driver: not driver.main.fleet.marks),
            Act("sort", lambda driver: driver.main.fleet.sort == "name"),
            Act("filter", has_focus(FilterInput)),
            Act(
                "filter_keep", lambda driver: driver.is_in_list() and driver.main.fleet.filter.text == "s0", ("s", "0")
            ),
            Act("list_open", lambda driver: driver.main.has_class("-detail-front")),
        ),
    )


def on_a_sandbox(root: Path) -> Scene:
    cloud = FakeCloud(sandboxes=[sandbox("api"), sandbox("web"), sandbox("")])

    def fail(driver: Driver) -> None:
        driver.main.failed("create", QuotaExceeded("two are enough", hint="end one"))

    def to_stranger(driver: Driver) -> None:
        driver.main.fleet.move_to_key("mvm-stranger")

    return Scene(
        cloud,
        (
            Act("create", is_asked(CreateScreen)),
            Act("record", is_asked(PageScreen, "image_version"), ("escape",)),
            Act("copy", is_asked(ChooseScreen, "Copy"), ("escape",)),
            Act("rename", is_asked(AskScreen, "Rename"), ("escape",)),
            Act("save_work", is_asked(AskScreen, "./api-work"), ("escape",)),
            Act("remove", is_asked(ConfirmScreen, "Remove"), ("escape",)),
            Act("fork", is_asked(AskScreen, "Fork api as"), ("escape",)),
            Act("snapshot", is_asked(ChooseScreen, "of api, 20 MiB"), (*"twin", "enter")),
            Act("secret", is_asked(ChooseScreen, "goes to api.example.com"), ("escape",)),
            Act("keep_awake", is_asked(AskScreen, "Keep api awake until"), ("escape",)),
            Act("budget", is_asked(AskScreen, "api is suspended when it has cost"), ("escape",)),
            Act("adopt", is_asked(AskScreen, "Adopt"), ("escape",), to_stranger),
            Act("explain", is_asked(PageScreen, "two are enough"), ("escape",), fail),
            # A screen in memory cannot be lent; on a terminal the shell gets it.
            Act("own_shell", lambda driver: any("cannot be lent" in told for told in driver.toasts()), ("escape", "g")),
            Act("toggle_pause", lambda driver: cloud.done[-1:] == ["suspend api"], ("escape", "g")),
            Act("run", has_focus(LineInput)),
        ),
    )


def on_a_store_that_is_too_new(root: Path) -> Scene:
    cloud = FakeCloud(sandboxes=[sandbox("api")], opening_error=StoreTooNew("too new", hint="upgrade"))

    def mend(driver: Driver) -> None:
        cloud.opening_error = None

    return Scene(cloud, (Act("refresh", lambda driver: driver.main.is_open, arrange=mend),))


def everywhere(root: Path) -> Scene:
    cloud = FakeCloud(sandboxes=[sandbox("api"), sandbox("web")])
    ids = [spec.id for spec in TABS]

    def brings(tab_id: str) -> Seen:
        return lambda driver: current_tab(driver) == tab_id

    def says(words: str) -> Seen:
        return lambda driver: any(words in told for told in driver.toasts())

    return Scene(
        cloud,
        (
            *(Act(f"tab_{tab_id}", brings(tab_id)) for tab_id in (*ids[1:], ids[0])),
            Act("next_tab", brings(ids[1])),
            Act("previous_tab", brings(ids[0])),
            Act("next_pane", lambda driver: driver.main.has_class("-detail-front")),
            Act("previous_pane", Driver.is_in_list),
            Act("zoom", lambda driver: driver.main.has_class("-zoomed")),
            Act("pin", lambda driver: driver.main.query_one(DetailPane).pinned == ids[0]),
            Act("theme", lambda driver: driver.app.theme == "sbx-light"),
            Act("interrupt", says("q quits")),
            # A screen in memory belongs to no shell; on a terminal it is given back.
            Act("suspend", says("cannot suspend")),
            Act("context", is_asked(ChooseScreen, "Look at which context?")),
            Act("clients", is_asked(ClientsScreen, "Agents over MCP"), ("escape",)),
            Act("notes", is_asked(PageScreen, "Messages"), ("escape",)),
            Act("help", is_asked(PageScreen, "Help"), ("escape",)),
            Act("palette", lambda driver: isinstance(driver.app.screen, CommandPalette), ("escape",)),
            Act("quit", lambda driver: driver.app.return_code == 0, ("escape",)),
        ),
    )


async def _print_or_wait(line: str, on_output: OnOutput) -> int:
    if line == "wait":
        await on_output("out", b"started\n")
        await asyncio.Event().wait()
    await on_output("out", f"{'wide ' * 60}\n".encode() * SCREENFULS)
    return 0


def on_a_command_line(root: Path) -> Scene:
    cloud = FakeCloud(sandboxes=[sandbox("api")], run=_print_or_wait)
    to_line = key_of_action("run")

    def line(driver: Driver) -> str:
        return driver.main.query_one(LineInput).value

    def is_running(driver: Driver) -> bool:
        return "started" in driver.output.visible_text()

    return Scene(
        cloud,
        (
            Act("line_run", lambda driver: "exit 0" in driver.text(), (to_line, *"one")),
            Act("line_earlier", lambda driver: line(driver) == "one"),
            Act("line_later", lambda driver: line(driver) == ""),
            Act("line_complete", lambda driver: "completes nothing" in driver.text(), ("x",)),
            Act("line_lend", lambda driver: any("has a terminal" in told for told in driver.toasts()), ("backspace",)),
            Act("line_stop", lambda driver: cloud.cancelled == ["wait"], (*"wait", "enter"), is_ready=is_running),
            Act(
                "output_stop",
                lambda driver: cloud.cancelled == ["wait", "wait"],
                (*"wait", "enter", "tab"),
                is_ready=lambda driver: is_running(driver) and driver.main.focused is driver.output,
            ),
        ),
    )


def on_output(root: Path) -> Scene:
    cloud = FakeCloud(sandboxes=[sandbox("api")], run=_print_or_wait)

    def is_at(row: int) -> Seen:
        return lambda driver: driver.output.top_row == row

    def folded(driver: Driver) -> int:
        return sum(block.is_folded for block in driver.output.transcript.blocks)

    runs = (key_of_action("run"), "a", "enter")

    def is_run(driver: Driver) -> bool:
        return len(driver.output.transcript.blocks) == 2 and driver.main.focused is driver.output

    return Scene(
        cloud,
        (
            Act("output_top", is_at(0), (*runs, *"b", "enter", "tab"), is_ready=is_run),
            Act("output_down", is_at(1)),
            Act("output_up", is_at(0)),
            Act("output_page_down", lambda driver: driver.output.top_row > 1),
            Act("output_page_up", is_at(0)),
            Act("output_next", lambda driver: driver.output.top_row > SCREENFULS),
            Act("output_previous", is_at(0)),
            Act("output_right", lambda driver: driver.output.scroll_offset.x > 0),
            Act("output_left", lambda driver: driver.output.scroll_offset.x == 0),
            Act("output_copy", lambda driver: "wide" in driver.app.clipboard),
            Act("output_fold", lambda driver: folded(driver) == 1),
            Act("output_fold_all", lambda driver: folded(driver) == 2),
            Act("output_follow", lambda driver: driver.output.is_following, ("F", "g")),
        ),
    )


def on_files(root: Path) -> Scene:
    work = root / "box" / "work"
    (work / "src").mkdir(parents=True)
    (work / "notes.txt").write_text("a line\n")
    (work / "long.txt").write_text(f"{'wide ' * 60}\n" * SCREENFULS)
    cloud = FakeCloud(sandboxes=[sandbox("api")], files_root=root / "box")

    def paths(driver: Driver) -> list[str]:
        tree = driver.main.query_one(FilesTab).listing
        return [node.path for node in tree.nodes() if node.info is not None] if tree is not None else []

    def add(driver: Driver) -> None:
        (work / "src" / "app.py").write_text("pass\n")

    def is_listed(driver: Driver) -> bool:
        return "/work/notes.txt" in paths(driver) and has_focus(RowList)(driver) is True

    return Scene(
        cloud,
        (
            Act("row_last", lambda driver: _row_of("/work/notes.txt", driver), to_tab("files"), is_ready=is_listed),
            Act("row_first", lambda driver: _row_of("/work/src", driver)),
            Act("files_copy", is_copied("/work/src")),
            Act("files_rename", is_asked(AskScreen, "Move src to")),
            Act("files_download", is_asked(AskScreen, "Download src to"), ("escape",)),
            Act("files_upload", is_asked(AskScreen, "Upload into /work"), ("escape",)),
            Act("files_folder", is_asked(AskScreen, "New folder in /work"), ("escape",)),
            Act("files_delete", is_asked(ConfirmScreen, "Delete in api?"), ("escape",)),
            Act(
                "files_refresh",
                lambda driver: "/work/new" in paths(driver),
                ("escape",),
                lambda _: (work / "new").touch(),
            ),
            Act("files_open", lambda driver: "/work/src/app.py" in paths(driver), arrange=add),
            Act("files_close", lambda driver: "/work/src/app.py" not in paths(driver)),
        ),
    )


def on_a_file(root: Path) -> Scene:
    to_tree = on_files(root)

    def view(driver: Driver) -> FileView:
        return driver.main.query_one(FileView)

    def is_at(line: int) -> Seen:
        return lambda driver: view(driver).scroll_offset.y == line

    return Scene(
        to_tree.cloud,
        (
            *to_tree.acts[:2],
            Act("row_down", lambda driver: _row_of("/work/long.txt", driver)),
            Act("files_open", lambda driver: "long.txt · 60 lines" in driver.text()),
            Act("row_down", is_at(1), (key_of_action("next_pane"),)),
            Act("row_up", is_at(0)),
            Act("row_page_down", lambda driver: view(driver).scroll_offset.y > 1),
            Act("row_page_up", is_at(0)),
            Act("view_right", lambda driver: view(driver).scroll_offset.x > 0),
            Act("view_left", lambda driver: view(driver).scroll_offset.x == 0),
            Act("file_copy", lambda driver: driver.app.clipboard.count("\n") == SCREENFULS - 1),
            Act("file_download", is_asked(AskScreen, "Download long.txt to")),
        ),
    )


def _row_of(path: str, driver: Driver) -> bool:
    row = driver.main.query_one("#tree", RowList).selected
    return row is not None and row.key == path


def on_jobs(root: Path) -> Scene:
    cloud = FakeCloud(sandboxes=[sandbox("api")], running={"api": [job("api", "make", has_terminal=True)]})

    def tab(driver: Driver) -> JobsTab:
        return driver.main.query_one(JobsTab)

    def begin(driver: Driver) -> None:
        cloud.running["api"] = [job("api", "make", has_terminal=True), job("api", "make test", id="j2")]

    return Scene(
        cloud,
        (
            Act("job_copy", is_copied("j1"), to_tab("jobs"), is_ready=lambda driver: tab(driver).selected),
            Act("job_details", is_asked(PageScreen, "A job")),
            Act("job_signal", is_asked(ChooseScreen, "Signal job"), ("escape",)),
            Act("job_remove", is_asked(ConfirmScreen, "Remove job"), ("escape",)),
            # A screen in memory cannot be lent; on a terminal the job gets it.
            Act("job_attach", lambda driver: any("cannot be lent" in told for told in driver.toasts()), ("escape",)),
            Act("job_refresh", lambda driver: len(tab(driver).jobs) == 2, arrange=begin),
            Act("job_follow", lambda driver: "said by make" in driver.text()),
        ),
    )


def on_logs(root: Path) -> Scene:
    wide = "wide " * 40
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    cloud.seeing.lines_there = [log_line(f"{wide}{number}") for number in range(SCREENFULS)]

    def book(driver: Driver) -> Logbook:
        return driver.main.query_one(LogsTab).book

    return Scene(
        cloud,
        (
            Act(
                "logs_find",
                is_asked(AskScreen, "Only lines in which is found"),
                to_tab("logs"),
                is_ready=lambda driver: book(driver).count == SCREENFULS,
            ),
            Act("logs_job", is_asked(ChooseScreen, "Whose lines?"), ("escape",)),
            Act("logs_source", is_asked(ChooseScreen, "Which log?"), ("escape",)),
            Act("logs_save", is_asked(AskScreen, "Write the lines"), ("escape",)),
            Act("logs_times", lambda driver: not book(driver).look.has_times, ("escape",)),
            Act("logs_wrap", lambda driver: book(driver).transcript.end > SCREENFULS),
            Act("logs_clear", lambda driver: "nothing was said in api" in driver.text()),
        ),
    )


def on_activity(root: Path) -> Scene:
    store = Store.open(home_at(root))
    for kind in ("sandbox.suspend", "sandbox.resume"):
        Events(store).record(context="local", kind=kind, subject="api", actor="cli:you", data={})
    store.close()

    def tab(driver: Driver) -> ActivityTab:
        return driver.main.query_one(ActivityTab)

    return Scene(
        FakeCloud(sandboxes=[sandbox("api")]),
        (
            Act(
                "activity_copy",
                is_copied("sbx start api"),
                to_tab("activity"),
                is_ready=lambda driver: len(tab(driver).changes) == 2,
            ),
            Act("activity_scope", lambda driver: tab(driver).is_all),
            Act("activity_open", is_asked(PageScreen, "A change")),
        ),
    )


SCENES: tuple[Callable[[Path], Scene], ...] = (
    on_the_list,
    on_a_sandbox,
    on_a_store_that_is_too_new,
    everywhere,
    on_a_command_line,
    on_output,
    on_files,
    on_a_file,
    on_jobs,
    on_logs,
    on_a_sync,
    on_ports,
    on_activity,
)
