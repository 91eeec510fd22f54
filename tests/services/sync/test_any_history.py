"""Any history of edits on both sides, with connections and processes that break: no written byte is ever lost."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sbxguest.tree.stage import write_all
from sbxtui.core.errors import Conflict, GuestUnreachable
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Mode, OnConflict, Side
from sbxtui.services.sync.resolve import keep_both, resolve
from sbxtui.services.sync.review import review, take_over
from sbxtui.services.sync.undo import undo
from tests.services.sync.pairs import TwoFolders, two_folders
from tests.services.sync.processes import started

_IN_MEMORY = "/dev/shm"
_KILLS = 25
_EDITS = ("write", "write", "write", "write", "remove", "remove folder", "move", "chmod", "clock", "flip")
NAMES = ["a", "b", "d/a", "d/b", "d/e/a", "x/y/z"]


class History:
    """Random steps on two folders, and every content anybody wrote."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.waste = root / "waste"
        self.waste.mkdir()
        self.written: set[str] = set()
        self.removed: set[str] = set()
        self.log: list[str] = []
        self.contents: dict[tuple[str, int, int, int], str] = {}
        self.cut_in = 0
        self.full_in = 0
        self.operations = 0

    def fault(self, point: str) -> None:
        """Break the connection when its time has come."""
        self.cut_in -= 1
        if self.cut_in == 0:
            self.log.append(f"cut while {point}")
            raise GuestUnreachable(point)

    def write(self, fd: int, piece: bytes, make_room: Callable[[], bool]) -> None:
        """As a disk does on which contents wait; it is full when its time has come."""
        self.full_in -= 1
        if self.full_in == 0:
            self.log.append("disk full")
            os.write(fd, piece[: len(piece) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, piece, make_room)

    def is_doubled(self) -> bool:
        """Whether a batch comes twice, as after an answer that was lost."""
        return self.random.random() < 0.1

    def edit(self, two: TwoFolders) -> None:
        """A person, or the sandbox, writes, removes or moves something; whoever is faster wins."""
        self.operations += 1
        try:
            self._edit(two)
        except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            self.log.append(f"too late: {error}")

    def _edit(self, two: TwoFolders) -> None:
        side = self.random.choice([two.here, two.there])
        path = side / self.random.choice(NAMES)
        what = self.random.choice(_EDITS)
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
            case "clock":
                # Whatever the clock of that machine says just then.
                if path.is_file():
                    at_s = self.random.choice([0, 1e9, time.time() + 3600])
                    os.utime(path, (at_s, at_s))
            case _:
                self._flip(path)

    def edits(self, two: TwoFolders, count: int) -> None:
        """Some edits one after the other."""
        for _ in range(count):
            self.edit(two)

    def _write(self, path: Path) -> None:
        if any(above.is_file() for above in path.parents) or path.is_dir():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._forget(path)
        content = f"{len(self.written)} {self.random.random()} {'x' * self.random.choice([0, 0, 0, 70_000])}"
        # As editors do: in place, or by another file that takes the name.
        if self.random.random() < 0.5:
            path.write_text(content)
        else:
            temporary = path.with_name(f"4913{self.random.random()}")
            temporary.write_text(content)
            temporary.rename(path)
        self.written.add(content)

    def _forget(self, path: Path) -> None:
        """What its owner overwrites is gone by their own will."""
        if path.is_file():
            self.removed.add(path.read_text())

    def _remove(self, path: Path) -> None:
        # In one step, for a link's process may write below it meanwhile: its owner removed that as well.
        if os.path.lexists(path):
            path.rename(self.waste / str(self.operations))

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
        self.operations += 1
        self.cut_in = self.random.choice([0, 0, self.random.randrange(1, 30)])
        self.full_in = self.random.choice([0, 0, 0, self.random.randrange(1, 10)])
        try:
            await self._do(what, two)
        except (GuestUnreachable, Conflict):
            pass
        finally:
            self.cut_in = self.full_in = 0

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
                conflicts = list(reviewed.conflicts)
                if what == "pull":
                    await take_over(two.pair, intake, reviewed, lambda size_bytes: None)
                elif what == "resolve" and conflicts:
                    await self._decide(two, intake, self.random.choice(conflicts).path)
                elif what == "undo" and two.pair.ancestors.batches():
                    await undo(two.pair, intake, two.pair.ancestors.batches()[0])

    async def _decide(self, two: TwoFolders, intake: Intake, path: bytes) -> None:
        how = self.random.choice([Side.LOCAL, Side.GUEST, None])
        if how is None:
            await keep_both(two.pair, intake, path)
        else:
            await resolve(two.pair, intake, path, how)

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


async def run_history(seed: int, operations: int) -> None:
    """Many operations; the link's process is started anew now and then."""
    root = Path(tempfile.mkdtemp(prefix="sbx-history-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None))
    try:
        history = History(seed, root)
        mode, policy = history.random.choice(list(Mode)), history.random.choice([OnConflict.STOP, OnConflict.LOCAL])
        while history.operations < operations:
            with two_folders(root, mode=mode, fault=history.fault, on_conflict=policy) as two:
                two.guest.is_doubled = history.is_doubled
                for _ in range(12):
                    history.edits(two, history.random.choice([1, 2, 4, 12]))
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr("sbxguest.tree.stage.write_all", history.write)
                        await history.sync(two)
                    assert not history.lost(), f"seed {seed}: {history.lost()} after {history.log[-30:]}"
            if history.random.random() < 0.1:
                history.log.append("state lost")
                for file in (root / "state").glob("link.db*"):
                    file.unlink()
    finally:
        shutil.rmtree(root)


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 50, 10))
async def test_no_history_of_edits_and_faults_loses_what_somebody_wrote(start: int) -> None:
    for seed in range(start, start + 10):
        await run_history(seed, 400)


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_no_long_history_loses_what_somebody_wrote() -> None:
    count = int(os.environ.get("SBX_SYNC_HISTORIES", "2000"))
    for seed in range(1000, 1000 + count):
        await asyncio.wait_for(run_history(seed, 500), 600)


@pytest.mark.long
@pytest.mark.parametrize("mode", [Mode.PUSH, Mode.TWO_WAY])
def test_no_kill_of_the_processes_that_sync_loses_what_somebody_wrote(tmp_path: Path, mode: Mode) -> None:
    history = History(7, tmp_path)
    with two_folders(tmp_path) as two:
        places = two
    with started("acting", tmp_path, mode.value) as acting:
        for _ in range(_KILLS):
            history.edits(places, 8)
            acting.tell("")
            pid = int(acting.hear())
            for _ in range(history.random.randrange(40)):
                history.log.append(acting.hear())
            history.edits(places, history.random.choice([0, 3]))
            os.kill(pid, signal.SIGKILL)
            history.log.append("killed")
            while acting.hear() != "ended":
                pass
            assert not history.lost(), f"{history.lost()} after {history.log[-60:]}"
