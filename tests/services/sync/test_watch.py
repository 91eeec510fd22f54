"""Hints of changes: none that matters is lost for long, and the watcher's death is not the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sbxguest.tree.inotify import Inotify
from sbxtui.services.sync.watch import EVERYTHING, FolderWatch

either = pytest.mark.parametrize("is_kernel_asked", [True, False], ids=["kernel", "library"])


class Heard:
    """Collects hints, and waits for one."""

    def __init__(self) -> None:
        self.paths: set[bytes] = set()
        self.troubles: list[str] = []
        self.losses = 0
        self._bell = asyncio.Event()

    def hint(self, paths: set[bytes]) -> None:
        self.paths |= paths
        self._bell.set()

    def trouble(self, words: str) -> None:
        self.troubles.append(words)
        self._bell.set()

    def loss(self) -> None:
        self.losses += 1

    async def until(self, path: bytes) -> None:
        async with asyncio.timeout(30):
            while path not in self.paths:
                self._bell.clear()
                await self._bell.wait()


@asynccontextmanager
async def watching(root: Path, *, is_kernel_asked: bool) -> AsyncIterator[Heard]:
    heard = Heard()
    watch = FolderWatch(os.fsencode(root), heard.hint, heard.trouble, heard.loss, is_kernel_asked=is_kernel_asked)
    task = asyncio.create_task(watch.run())
    try:
        # The watcher says nothing of when it has begun, so something is changed until it notices.
        async with asyncio.timeout(30):
            number = 0
            while b"probe" not in heard.paths:
                (root / "probe").write_text(str(number))
                number += 1
                await asyncio.sleep(0.01)
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@either
async def test_edits_new_folders_renames_and_removals_are_hinted_at(tmp_path: Path, is_kernel_asked: bool) -> None:
    async with watching(tmp_path, is_kernel_asked=is_kernel_asked) as heard:
        (tmp_path / "a").write_text("x")
        await heard.until(b"a")
        (tmp_path / "d" / "e").mkdir(parents=True)
        await heard.until(b"d")
        (tmp_path / "a").rename(tmp_path / "b")
        await heard.until(b"b")
        (tmp_path / "b").unlink()
        (tmp_path / "c").symlink_to("nowhere")
        await heard.until(b"c")


async def test_every_hint_comes_twice_for_what_was_written_before_the_library_got_there(tmp_path: Path) -> None:
    async with watching(tmp_path, is_kernel_asked=False) as heard:
        (tmp_path / "new").mkdir()
        await heard.until(b"new")
        heard.paths.clear()
        await heard.until(b"new")


async def test_a_name_that_kills_the_library_leads_to_a_look_at_everything(tmp_path: Path) -> None:
    async with watching(tmp_path, is_kernel_asked=False) as heard:
        heard.paths.clear()
        with open(os.path.join(os.fsencode(tmp_path), b"\xff\xfe"), "w"):
            pass
        await heard.until(EVERYTHING)
        assert any("watcher" in words for words in heard.troubles)
        (tmp_path / "later").write_text("x")
        await heard.until(b"later")


@either
async def test_links_out_of_the_folder_are_not_hinted_at_under_a_foreign_name(
    tmp_path: Path, is_kernel_asked: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    async with watching(root, is_kernel_asked=is_kernel_asked) as heard:
        (outside / "f").write_text("x")
        (root / "f").write_text("x")
        await heard.until(b"f")
        assert not any(b"outside" in path for path in heard.paths)


async def test_the_kernel_tells_odd_names_and_files_in_new_folders_and_nothing_of_what_is_left_out(
    tmp_path: Path,
) -> None:
    (tmp_path / ".gitignore").write_text("out/\n")
    (tmp_path / "out").mkdir()
    async with watching(tmp_path, is_kernel_asked=True) as heard:
        heard.paths.clear()
        (tmp_path / "out" / "f").write_text("x")
        (tmp_path / "f.swp").write_text("x")
        (tmp_path / "new" / "deep").mkdir(parents=True)
        await heard.until(b"new")
        (tmp_path / "new" / "deep" / "f").write_text("x")
        await heard.until(b"new/deep/f")
        with open(os.path.join(os.fsencode(tmp_path), b"\xff\xfe"), "w"):
            pass
        await heard.until(b"\xff\xfe")
        assert not {b"out/f", b"f.swp", EVERYTHING} & heard.paths
        (tmp_path / ".gitignore").write_text("new/\n")
        await heard.until(b".gitignore")
        (tmp_path / "out" / "g").write_text("x")
        await heard.until(b"out/g")
        assert set(heard.troubles) == {""} and not heard.losses


async def test_another_folder_in_the_place_of_the_watched_one_is_watched_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    async with watching(root, is_kernel_asked=True) as heard:
        heard.paths.clear()
        root.rename(tmp_path / "moved")
        await heard.until(EVERYTHING)
        root.mkdir()
        async with asyncio.timeout(30):
            while b"again" not in heard.paths:
                (root / "again").write_text("x")
                await asyncio.sleep(0.01)
        assert any("went away" in words for words in heard.troubles)


async def test_notes_the_kernel_had_no_room_for_are_a_loss_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Losing(Inotify):
        def read(self) -> Iterator[bytes | None]:
            for path in super().read():
                yield None if path == b"much" else path

    monkeypatch.setattr("sbxtui.services.sync.kernelwatch.Inotify", Losing)
    async with watching(tmp_path, is_kernel_asked=True) as heard:
        heard.paths.clear()
        (tmp_path / "much").touch()
        await heard.until(EVERYTHING)
        assert heard.losses
