"""Hints of changes: none that matters is lost for long, and the watcher's death is not the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sbxtui.services.sync.watch import EVERYTHING, FolderWatch


class Heard:
    """Collects hints, and waits for one."""

    def __init__(self) -> None:
        self.paths: set[bytes] = set()
        self.troubles: list[str] = []
        self._bell = asyncio.Event()

    def hint(self, paths: set[bytes]) -> None:
        self.paths |= paths
        self._bell.set()

    def trouble(self, words: str) -> None:
        self.troubles.append(words)
        self._bell.set()

    async def until(self, path: bytes) -> None:
        async with asyncio.timeout(30):
            while path not in self.paths:
                self._bell.clear()
                await self._bell.wait()


@asynccontextmanager
async def watching(root: Path) -> AsyncIterator[Heard]:
    heard = Heard()
    task = asyncio.create_task(FolderWatch(os.fsencode(root), heard.hint, heard.trouble).run())
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


async def test_edits_new_folders_renames_and_removals_are_hinted_at(tmp_path: Path) -> None:
    async with watching(tmp_path) as heard:
        (tmp_path / "a").write_text("x")
        await heard.until(b"a")
        (tmp_path / "d" / "e").mkdir(parents=True)
        await heard.until(b"d")
        (tmp_path / "a").rename(tmp_path / "b")
        await heard.until(b"b")
        (tmp_path / "b").unlink()
        (tmp_path / "c").symlink_to("nowhere")
        await heard.until(b"c")


async def test_every_hint_comes_twice_for_what_was_written_before_the_watcher_got_there(tmp_path: Path) -> None:
    async with watching(tmp_path) as heard:
        (tmp_path / "new").mkdir()
        await heard.until(b"new")
        heard.paths.clear()
        await heard.until(b"new")


async def test_a_name_that_kills_the_watcher_leads_to_a_look_at_everything(tmp_path: Path) -> None:
    async with watching(tmp_path) as heard:
        heard.paths.clear()
        with open(os.path.join(os.fsencode(tmp_path), b"\xff\xfe"), "w"):
            pass
        await heard.until(EVERYTHING)
        assert any("watcher" in words for words in heard.troubles)
        (tmp_path / "later").write_text("x")
        await heard.until(b"later")


async def test_links_out_of_the_folder_are_not_hinted_at_under_a_foreign_name(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    async with watching(root) as heard:
        (outside / "f").write_text("x")
        (root / "f").write_text("x")
        await heard.until(b"f")
        assert not any(b"outside" in path for path in heard.paths)
