"""What is done with a sync, in a scene."""

from __future__ import annotations

from pathlib import Path

from sbxtui.services.sync.desk import Found, Item
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.screens.page import PageScreen
from sbxtui.tui.tabs.sync import SyncTab
from sbxtui.tui.widgets.fileview import FileView
from sbxtui.tui.widgets.rows import RowList
from tests.support.fake_services import FakeCloud, sandbox
from tests.support.fake_sync import sync_view
from tests.tui.acting import Act, Scene, Seen, has_focus, is_asked, is_copied, to_tab
from tests.tui.driving import Driver


def on_a_sync(root: Path) -> Scene:
    cloud = FakeCloud(sandboxes=[sandbox("api")])
    desk = cloud.desk

    def did(what: str) -> Seen:
        return lambda driver: desk.done[-1:] == [what] or desk.done[-2:] == [what, "look"]

    def begin(driver: Driver) -> None:
        desk.show(sync_view(guest_changes=3, conflict_count=1))

    def dispute(driver: Driver) -> None:
        desk.found = Found(tuple(Item(name, "conflict") for name in (b"a.txt", b"b.txt", b"c.txt", b"d.txt")))
        driver.main.query_one(SyncTab).look()

    def is_listed(driver: Driver) -> bool:
        return driver.main.query_one("#sync-items", RowList).rows != [] and has_focus(RowList)(driver) is True

    return Scene(
        cloud,
        (
            Act("sync_start", is_asked(AskScreen, "Sync api with"), to_tab("sync")),
            Act("sync_details", is_asked(PageScreen, "lag_p95_s"), ("escape",), begin, is_ready=is_listed),
            Act("sync_copy", is_copied("notes.md"), ("escape",)),
            Act("sync_accept", did("accept notes.md")),
            Act("sync_diff", lambda driver: "return 42" in driver.text(), is_ready=is_listed),
            Act("patch_copy", lambda driver: "return 42" in driver.app.clipboard),
            Act("patch_accept", did("accept src/app.py")),
            Act("sync_accept_all", is_asked(ConfirmScreen, "Take over from api?"), is_ready=is_listed),
            Act("sync_look", lambda driver: desk.done.count("look") > 3, ("escape",)),
            Act("sync_reject", did("reject package.json")),
            Act("patch_reject", did("reject old.txt"), ("enter",), is_ready=has_focus(FileView)),
            Act("sync_both", did("keep both of a.txt"), arrange=dispute, is_ready=is_listed),
            Act("sync_merge", did("merge b.txt"), is_ready=is_listed),
            Act("patch_both", did("keep both of c.txt"), ("enter",), is_ready=has_focus(FileView)),
            Act("patch_merge", did("merge d.txt"), ("enter",), is_ready=has_focus(FileView)),
            Act("sync_undo", is_asked(ConfirmScreen, "Take back")),
            Act("sync_pause", did("pause"), ("escape",)),
            Act("sync_stop", is_asked(ConfirmScreen, "Stop syncing api?")),
        ),
    )
