"""The files tab: the tree, a look into files, and every change."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.core.model import SandboxState
from sbxtui.tui.preview import preview_of
from sbxtui.tui.screens.ask import AskScreen
from sbxtui.tui.screens.confirm import ConfirmScreen
from sbxtui.tui.tabs.files import FilesTab
from sbxtui.tui.widgets.fileview import FileView
from tests.support.fake_services import FakeCloud, sandbox
from tests.tui.driving import Driver, dashboard, tab_key


def cloud_with_files(root: Path, state: SandboxState = SandboxState.RUNNING) -> FakeCloud:
    work = root / "box" / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "app.py").write_text("def main():\n    return 42\n")
    (work / "notes.txt").write_text("first\nsecond\n")
    (work / "blob").write_bytes(bytes(range(256)) * 8)
    return FakeCloud(sandboxes=[sandbox("api", state), sandbox("web")], files_root=root / "box")


def tab(driver: Driver) -> FilesTab:
    return driver.main.query_one(FilesTab)


def names(driver: Driver) -> list[str]:
    nodes = tab(driver).listing.nodes() if tab(driver).listing is not None else []  # type: ignore[union-attr]  # just asked
    return [node.path if node.info is not None else node.words for node in nodes]


async def opened(driver: Driver) -> None:
    await driver.press("g", tab_key("files"), "tab")
    await driver.until(lambda: "/work/blob" in names(driver))


async def test_it_lists_the_working_folder_with_folders_first_and_opens_them(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_with_files(tmp_path)) as driver:
        await opened(driver)
        assert names(driver) == ["/work/src", "/work/blob", "/work/notes.txt"]
        await driver.press("enter")
        await driver.until(lambda: "/work/src/app.py" in names(driver))
        await driver.press("j", "h")
        assert names(driver) == ["/work/src", "/work/blob", "/work/notes.txt"]
        await driver.press("g", "h")
        await driver.until(lambda: names(driver) == ["/work", "/work/src", "/work/blob", "/work/notes.txt"])


async def test_a_file_is_looked_into_with_colours_and_left_by_escape(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_with_files(tmp_path)) as driver:
        await opened(driver)
        await driver.press("enter")
        await driver.until(lambda: "/work/src/app.py" in names(driver))
        await driver.press("j", "enter")
        await driver.until(lambda: "return 42" in driver.text())
        assert "2 lines" in driver.text()
        lines = driver.main.query_one(FileView).preview.lines
        assert len({segment.style for line in lines for segment in line}) > 1
        await driver.press("escape")
        await driver.until(lambda: "return 42" not in driver.text())
        assert driver.main.focused is not None and driver.main.focused.id == "tree"


async def test_a_binary_file_is_dumped(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_with_files(tmp_path)) as driver:
        await opened(driver)
        await driver.press("j", "enter")
        await driver.until(lambda: "binary, 2.0 KiB" in driver.text())
        assert "00000000  00 01 02 03" in driver.text()


async def test_a_sleeping_sandbox_is_asked_only_when_a_person_does(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_with_files(tmp_path, SandboxState.SUSPENDED)) as driver:
        await driver.press("G", tab_key("files"))
        await driver.until(lambda: "tab r lists its files, which wakes it" in driver.text())
        await driver.press("tab")
        await driver.until(lambda: ": r lists its files, which wakes it" in driver.text())
        assert tab(driver).listing is None
        await driver.press("r")
        await driver.until(lambda: "/work/blob" in names(driver))


async def test_the_key_that_lists_the_files_is_one_that_works_in_the_list(tmp_path: Path) -> None:
    cloud = cloud_with_files(tmp_path)
    cloud.sandboxes.append(sandbox("web"))
    async with dashboard(tmp_path, cloud) as driver:
        await driver.press("g", tab_key("files"))
        await driver.until(lambda: "/work/blob" in names(driver))
        await driver.press("j")
        said = f"{tab_key('files')} lists the files of web"
        await driver.until(lambda: said in driver.text())
        assert tab(driver).listing is None and driver.is_in_list()
        await driver.press(tab_key("files"))
        await driver.until(lambda: tab(driver).listing is not None)


@pytest.mark.long
async def test_download_upload_rename_folder_and_delete(tmp_path: Path) -> None:
    work = tmp_path / "box" / "work"
    async with dashboard(tmp_path, cloud_with_files(tmp_path)) as driver:
        await opened(driver)
        await driver.press("G", "w")
        assert isinstance(driver.app.screen, AskScreen)
        await driver.press("ctrl+u", *str(tmp_path / "got"), "enter")
        await driver.until(lambda: "download /work/notes.txt done, 13 B" in driver.status())
        assert (tmp_path / "got").read_text() == "first\nsecond\n"
        await driver.press("u", *str(tmp_path / "got"), "enter")
        await driver.until(lambda: "/work/got" in names(driver))
        await driver.press("g", "j", "R", "ctrl+u", *"/work/blob2", "enter")
        await driver.until(lambda: "/work/blob2" in names(driver))
        await driver.press("m", *"new", "enter")
        await driver.until(lambda: "/work/new" in names(driver))
        tab(driver).query_one("#tree").move_to_key("/work/blob2")  # type: ignore[attr-defined]  # it is the list
        await driver.press("d")
        assert isinstance(driver.app.screen, ConfirmScreen)
        assert "/work/blob2" in driver.text() and "Nothing brings it back" in driver.text()
        await driver.press("y")
        await driver.until(lambda: "/work/blob2" not in names(driver))
        assert sorted(one.name for one in work.iterdir()) == ["got", "new", "notes.txt", "src"]


async def test_d_in_the_tree_deletes_no_sandbox(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_with_files(tmp_path)) as driver:
        await opened(driver)
        await driver.press("d")
        assert "Delete in api?" in driver.text()
        await driver.press("enter")
        assert len(driver.main.fleet.all) == 2


async def test_what_cannot_be_copied_is_told_with_its_remedy(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_with_files(tmp_path)) as driver:
        await opened(driver)
        await driver.press("u", *"/no/such/file", "enter")
        await driver.until(lambda: "no file at /no/such/file" in driver.status())


async def test_the_path_is_copied(tmp_path: Path) -> None:
    async with dashboard(tmp_path, cloud_with_files(tmp_path)) as driver:
        await opened(driver)
        await driver.press("G", "y")
        await driver.until(lambda: driver.toasts())
        assert driver.app.clipboard == "/work/notes.txt"
        assert (tmp_path / "cache" / "copied.txt").read_text() == "/work/notes.txt"


@pytest.mark.parametrize(
    ("head", "size_bytes", "words"),
    [
        (b"", 0, "0 lines, 0 B"),
        (b"a\nb", 3, "2 lines, 3 B"),
        (b"a" * 100, 10_000_000, "only the first 100 B are shown"),
        (b"\x00\x01", 2, "binary, 2 B"),
        ("ä".encode() * 50 + b"\xc3", 101, "1 lines"),
        (bytes(range(128, 256)), 128, "binary"),
    ],
)
def test_what_a_preview_says_of_a_file(head: bytes, size_bytes: int, words: str) -> None:
    assert words in preview_of("/work/x", head, size_bytes, "").words


def test_a_preview_is_harmless_whatever_is_in_the_file() -> None:
    attack = b"\x1b]52;c;ZXZpbA==\x07\x1b[2J\xc2\x9b2Jok\xe2\x80\xae\tend\r\n" + b"x" * 100_000
    for style in ("", "github-dark"):
        preview = preview_of("/work/\x1b[2Jevil.py", attack, len(attack), style)
        texts = "".join(segment.text for line in preview.lines for segment in line) + "".join(preview.texts)
        assert not {*map(chr, range(0x20)), "\x7f", "\x9b", "\u202e"} & set(texts)
        assert max(map(len, preview.texts)) < 5_000
