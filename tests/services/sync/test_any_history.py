"""Any history of edits on both sides, with connections and processes that break: no written byte is ever lost."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from sbxtui.core.errors import Conflict, GuestUnreachable
from sbxtui.services.sync.model import Mode, Side
from sbxtui.services.sync.resolve import resolve
from sbxtui.services.sync.review import review, take_over
from sbxtui.services.sync.undo import undo
from tests.services.sync.pairs import TwoFolders, two_folders

NAMES = ["a", "b", "d/a", "d/b", "d/e/a", "x/y/z"]


class History:
    """Random steps on two folders, and every content anybody wrote."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.written: set[str] = set()
        self.removed: set[str] = set()
        self.log: list[str] = []
        self.contents: dict[tuple[str, int, int, int], str] = {}
        self.cut_in = 0

    def fault(self, point: str) -> None:
        """Break the connection when its time has come."""
        self.cut_in -= 1
        if self.cut_in == 0:
            self.log.append(f"cut while {point}")
            raise GuestUnreachable(point)

    def edit(self, two: TwoFolders) -> None:
        """A person, or the sandbox, writes, removes or moves something."""
        side = self.random.choice([two.here, two.there])
        path = side / self.random.choice(NAMES)
        what = self.random.choice(["write", "write", "write", "remove", "remove folder", "move", "chmod", "flip"])
        self.log.append(f"{what} {path.relative_to(self.root)}")
        match what:
            case "write":
                self._write(path)
            case "remove":
                self._remove(path)
            case "remove folder":
                self._remove(path.parent if path.parent != side else path)
            case "move":
                self._move(path, side / self.random.choice(NAMES))
            case "chmod":
                if path.is_file():
                    path.chmod(0o755 if self.random.random() < 0.5 else 0o644)
            case _:
                self._flip(path)

    def _write(self, path: Path) -> None:
        if any(above.is_file() for above in path.parents) or path.is_dir():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._forget(path)
        content = f"{len(self.written)} {self.random.random()} {'x' * self.random.choice([0, 0, 0, 70_000])}"
        self.written.add(content)
        # As editors do: in place, or by another file that takes the name.
        if self.random.random() < 0.5:
            path.write_text(content)
        else:
            temporary = path.with_name(f"4913{self.random.random()}")
            temporary.write_text(content)
            temporary.rename(path)

    def _forget(self, path: Path) -> None:
        """What its owner overwrites or removes is gone by their own will."""
        if path.is_file():
            self.removed.add(path.read_text())

    def _remove(self, path: Path) -> None:
        if path.is_dir():
            for below in path.rglob("*"):
                self._forget(below)
            shutil.rmtree(path)
        elif path.exists():
            self._forget(path)
            path.unlink()

    def _move(self, path: Path, target: Path) -> None:
        if path.is_file() and not target.exists() and target.parent.is_dir():
            path.rename(target)

    def _flip(self, path: Path) -> None:
        self._remove(path)
        if not any(above.is_file() for above in path.parents):
            path.mkdir(parents=True, exist_ok=True)

    async def sync(self, two: TwoFolders) -> None:
        """The link, or a person, does something."""
        what = self.random.choice(["compare", "follow", "follow", "pull", "resolve", "undo"])
        self.log.append(what)
        self.cut_in = self.random.choice([0, 0, self.random.randrange(1, 30)])
        try:
            await self._do(what, two)
        except (GuestUnreachable, Conflict):
            pass
        finally:
            self.cut_in = 0

    async def _do(self, what: str, two: TwoFolders) -> None:
        if what == "compare" or (what == "follow" and not two.pair.has_met):
            await two.cycle.compare()
        elif what == "follow":
            await two.cycle.follow({b""})
        else:
            with two.intake() as intake:
                reviewed = await review(two.pair)
                if reviewed.halts:
                    return
                if what == "pull":
                    await take_over(two.pair, intake, reviewed, lambda size_bytes: None)
                elif what == "resolve" and reviewed.conflicts:
                    await resolve(two.pair, intake, reviewed.conflicts[0].path, self.random.choice(list(Side)))
                elif what == "undo" and two.pair.ancestors.batches():
                    await undo(two.pair, intake, two.pair.ancestors.batches()[0])

    def lost(self) -> set[str]:
        """Contents that are nowhere: not in a folder, not in any trash, and that nobody gave up."""
        kept: set[str] = set()
        for folder, _, names in os.walk(self.root):
            for name in names:
                if "link.db" not in name:
                    kept.add(self._content(os.path.join(folder, name)))
        return self.written - self.removed - kept

    def _content(self, path: str) -> str:
        """Read once per version: trash grows, and is looked through after each step."""
        found = os.lstat(path)
        key = (path, found.st_ino, found.st_size, found.st_mtime_ns)
        if key not in self.contents:
            with open(path, "rb") as file:
                self.contents[key] = file.read().decode("utf-8", "replace")
        return self.contents[key]


async def run_history(seed: int, steps: int) -> None:
    """Many steps; the link's process is started anew now and then."""
    root = Path(tempfile.mkdtemp(prefix="sbx-history-"))
    try:
        history = History(seed, root)
        mode = history.random.choice(list(Mode))
        left = steps
        while left > 0:
            with two_folders(root, mode=mode, fault=history.fault) as two:
                for _ in range(min(left, 40)):
                    left -= 1
                    if history.random.random() < 0.7:
                        history.edit(two)
                    else:
                        await history.sync(two)
                    assert not history.lost(), f"seed {seed}: {history.lost()} after {history.log[-12:]}"
            if history.random.random() < 0.1:
                history.log.append("state lost")
                for file in (root / "state").glob("link.db*"):
                    file.unlink()
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("seed", range(4))
async def test_no_history_of_edits_and_faults_loses_what_somebody_wrote(seed: int) -> None:
    await run_history(seed, 150)


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_no_long_history_loses_what_somebody_wrote() -> None:
    count = int(os.environ.get("SBX_SYNC_HISTORIES", "2000"))
    for seed in range(1000, 1000 + count):
        await asyncio.wait_for(run_history(seed, 500), 600)
