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
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sbxguest.tree.stage import write_all
from sbxtui.core.errors import Conflict, GuestUnreachable, SbxError
from sbxtui.guest.faults import answered
from sbxtui.services.sync.intake import Intake
from sbxtui.services.sync.model import Mode, OnConflict, Side
from sbxtui.services.sync.resolve import keep_both, resolve
from sbxtui.services.sync.review import review, take_over
from sbxtui.services.sync.undo import undo
from tests.services.sync.pairs import TwoFolders, two_folders
from tests.services.sync.processes import started

_IN_MEMORY = "/dev/shm"
_KILLS = 25
_LARGE_BYTES = 16 * 1024
_EDITS = ("write", "write", "write", "write", "remove", "remove folder", "move", "chmod", "clock", "flip")
_FAULTS = {"cut", "fault of the guest", "twice", "disk full", "clock jump", "state lost"}
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
        # What a watcher saw on each side, and has not told yet.
        self.unsaid: dict[Path, set[bytes]] = defaultdict(set)
        self.faults: Counter[str] = Counter()

    def fault(self, point: str) -> None:
        """Break the connection, or the guest, when its time has come."""
        self.cut_in -= 1
        if self.cut_in == 0:
            what = self.random.choice(["cut", "fault of the guest"])
            self.note(what, point)
            raise GuestUnreachable(point) if what == "cut" else answered(500, b"{}")

    def note(self, fault: str, more: str = "") -> None:
        """A fault came."""
        self.faults[fault] += 1
        self.log.append(f"{fault} {more}")

    def write(self, fd: int, piece: bytes, make_room: Callable[[], bool]) -> None:
        """As a disk does on which contents wait; it is full when its time has come."""
        self.full_in -= 1
        if self.full_in == 0:
            self.note("disk full")
            os.write(fd, piece[: len(piece) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, piece, make_room)

    def is_doubled(self) -> bool:
        """Whether a batch comes twice, as after an answer that was lost."""
        is_doubled = self.random.random() < 0.1
        if is_doubled:
            self.note("twice")
        return is_doubled

    def clock(self) -> Callable[[], int]:
        """What the machine's clock says for a while, in nanoseconds; now and then it has jumped."""
        jump_s = self.random.choice([0, 0, 0, 3600, -3600])
        if not jump_s:
            return time.time_ns
        self.note("clock jump")
        return partial(_ahead, time.time_ns, jump_s)

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
        self._saw(side, path, path.parent if what == "remove folder" else path)
        match what:
            case "write":
                self._write(path)
            case "remove":
                self._remove(path)
            case "remove folder":
                self._remove(path.parent if path.parent != side else path)
            case "move":
                target = side / self.random.choice(NAMES)
                self._saw(side, target)
                self._move(path, target)
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

    def _saw(self, side: Path, *paths: Path) -> None:
        self.unsaid[side].update(os.fsencode(path.relative_to(side)) for path in paths if path != side)

    def hints(self, side: Path) -> set[bytes]:
        """Some of what a watcher saw; the rest comes later, or never."""
        some = {path for path in sorted(self.unsaid[side]) if self.random.random() < 0.5}
        self.unsaid[side] -= some
        return some

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
        what = self.random.choice(["compare", "follow", "hints", "hints", "pull", "resolve", "undo"])
        self.log.append(what)
        self.operations += 1
        self.cut_in = self.random.choice([0, 0, self.random.randrange(1, 30)])
        self.full_in = self.random.choice([0, 0, 0, self.random.randrange(1, 10)])
        try:
            await self._do(what, two)
        except (GuestUnreachable, Conflict):
            pass
        except SbxError as error:
            assert error.details.get("http_status") == 500
        finally:
            self.cut_in = self.full_in = 0

    async def _do(self, what: str, two: TwoFolders) -> None:
        if what == "compare" or (what in ("follow", "hints") and not two.pair.has_met):
            await two.cycle.compare()
        elif what == "follow":
            await two.cycle.follow({b""})
        elif what == "hints":
            is_heard_there = two.pair.mode is Mode.TWO_WAY
            await two.cycle.follow(self.hints(two.here), self.hints(two.there) if is_heard_there else ())
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
        # Not by its mtime: an edit may put an old one back.
        key = (path, found.st_ino, found.st_size, found.st_ctime_ns)
        if key not in self.contents:
            with open(path, "rb") as file:
                self.contents[key] = file.read().decode("utf-8", "replace")
        return self.contents[key]


async def leaves_nothing_to_do(two: TwoFolders) -> bool:
    """Whether looks at everything come to an end, unless a person has to decide."""
    for _ in range(3):
        await two.cycle.compare()
    return bool(two.cycle.status.halts or two.cycle.status.failed) or not two.pair.compare().changes


def _ahead(clock: Callable[[], int], jump_s: int) -> int:
    return clock() + jump_s * 10**9


class AtOnce(ThreadPoolExecutor):
    """Makes calls where they come from: of steps one after the other, changing threads would take the most time."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call it now."""
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - as a pool does
            done.set_exception(error)
        return done


def _make_files_large(patch: pytest.MonkeyPatch) -> None:
    """The longer contents go by themselves then, in pieces, and those of an empty folder while they are read."""
    for where, size_bytes in {
        "sbxguest.tree.contents._CHUNK_BYTES": _LARGE_BYTES,
        "sbxtui.services.sync.largestart._LARGE_BYTES": _LARGE_BYTES,
        "sbxtui.services.sync.transfer.INLINE_BYTES": _LARGE_BYTES,
        "sbxtui.services.sync.folder._CHUNK_BYTES": _LARGE_BYTES,
    }.items():
        patch.setattr(where, size_bytes)
    # One thread does all here: who reads would wait for himself.
    patch.setattr("sbxtui.services.sync.largestart._PATIENCE_S", 0.0)


async def run_history(seed: int, operations: int) -> Counter[str]:
    """Many operations; the link's process is started anew now and then. Returns the faults there were."""
    asyncio.get_running_loop().set_default_executor(AtOnce())
    root = Path(tempfile.mkdtemp(prefix="sbx-history-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None))
    try:
        history = History(seed, root)
        mode = history.random.choice(list(Mode))
        # Merging texts is left out: it asks git each time.
        policies = [OnConflict.STOP, OnConflict.LOCAL, *([OnConflict.GUEST] if mode is Mode.TWO_WAY else [])]
        policy = history.random.choice(policies)
        while history.operations < operations:
            with two_folders(root, mode=mode, fault=history.fault, on_conflict=policy) as two:
                two.guest.is_doubled = history.is_doubled
                for turn in range(12):
                    history.edits(two, history.random.choice([1, 2, 4, 12]))
                    with pytest.MonkeyPatch.context() as patch:
                        for where in ("stage", "newfolders", "blobs"):
                            patch.setattr(f"sbxguest.tree.{where}.write_all", history.write)
                        if seed % 2:
                            _make_files_large(patch)
                        patch.setattr("time.time_ns", history.clock())
                        patch.setattr("sbxtui.services.sync.headstart._PIECE_BYTES", 1)
                        await history.sync(two)
                    # What is lost stays lost.
                    if turn % 4 == 3:
                        assert not history.lost(), f"seed {seed}: {history.lost()} after {history.log[-60:]}"
                if history.operations >= operations:
                    assert await leaves_nothing_to_do(two), f"seed {seed}: {two.pair.compare()} {history.log[-30:]}"
                    assert not history.lost(), f"seed {seed}: {history.lost()} at the end"
            if history.random.random() < 0.1:
                history.note("state lost")
                for file in (root / "state").glob("link.db*"):
                    file.unlink()
        return history.faults
    finally:
        shutil.rmtree(root)


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 50, 10))
async def test_no_history_of_edits_and_faults_loses_what_somebody_wrote(start: int) -> None:
    faults: Counter[str] = Counter()
    for seed in range(start, start + 10):
        faults += await run_history(seed, 400)
    assert set(faults) == _FAULTS


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
