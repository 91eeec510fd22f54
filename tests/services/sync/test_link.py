"""A link that is acted on: saves arrive by themselves, whatever breaks in between."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sbxtui.core.errors import Conflict, GuestUnreachable, QuotaExceeded, SandboxEnded, SbxError
from sbxtui.services.sync.link import LiveLink
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.status import LinkState, Status
from sbxtui.services.sync.watch import FolderWatch
from tests.services.sync.pairs import TwoFolders, two_folders

DEADLINE_S = 60


class Running:
    """A link that runs, and waits for what it says."""

    def __init__(self, two: TwoFolders) -> None:
        self.two = two
        self._bell = asyncio.Event()
        self.link = LiveLink(two.pair, self._said, intake=two.taking_in)
        self.seen: list[tuple[LinkState, str]] = []

    @property
    def status(self) -> Status:
        return self.link.status

    def _said(self, status: Status) -> None:
        if not self.seen or self.seen[-1] != (status.state, status.words):
            self.seen.append((status.state, status.words))
        self._bell.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; looked at whenever the link says something, and now and then."""
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                self._bell.clear()
                try:
                    async with asyncio.timeout(0.05):
                        await self._bell.wait()
                except TimeoutError:
                    continue

    async def until_equal(self) -> None:
        await self.until(lambda: tree(self.two.here) == tree(self.two.there))

    async def until_state(self, state: LinkState) -> None:
        await self.until(lambda: self.status.state is state)


def tree(root: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        if ".git" in path.parts:
            continue
        if path.is_symlink():
            found[str(path.relative_to(root))] = f"-> {path.readlink()}"
        elif path.is_file():
            try:
                found[str(path.relative_to(root))] = path.read_text(errors="surrogateescape")
            except FileNotFoundError:
                continue
        else:
            found[str(path.relative_to(root))] = "dir"
    return found


@asynccontextmanager
async def running(tmp_path: Path, *, mode: Mode = Mode.PUSH) -> AsyncIterator[Running]:
    with two_folders(tmp_path, mode=mode) as two:
        live = Running(two)
        task = asyncio.create_task(live.link.run())
        try:
            yield live
            live.link.stop()
            async with asyncio.timeout(DEADLINE_S):
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_saves_arrive_by_themselves_and_temporary_names_of_editors_never_do(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)
        here = live.two.here
        (here / "f").write_text("1")
        await live.until_equal()
        with (here / "f").open("a") as file:
            file.write("2")
        await live.until_equal()
        (here / "4913").write_text("probe")
        (here / ".f.swp").write_text("swap")
        (here / "f___jb_tmp___").write_text("3")
        (here / "f").rename(here / "f~")
        (here / "f___jb_tmp___").rename(here / "f")
        await live.until(lambda: live.two.both("f") == ("3", "3"))
        assert sorted(os.listdir(live.two.there)) == ["f"]


async def test_a_hint_that_comes_while_others_settle_is_no_reason_to_look_at_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The only hints are the ones given here.
    monkeypatch.setattr("sbxtui.services.sync.watch.FolderWatch._watch", _watching_nothing)
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)
        looks = live.status.scans
        for number in range(5):
            (live.two.here / "one").write_text(f"1 {number}")
            (live.two.here / "two").write_text(f"2 {number}")
            live.link.hint({b"one"})
            # By then it waits for the save to come to its end.
            asyncio.get_running_loop().call_later(0.005, live.link.hint, {b"two"})
            await live.until_equal()
            await live.until_state(LinkState.WATCHING)
            (live.two.here / "three").write_text(f"3 {number}")
            live.link.hint({b"three"})
            await live.until_equal()
        # One may have been due.
        assert live.status.scans <= looks + 1


async def _watching_nothing(_watch: FolderWatch) -> str:
    await asyncio.Event().wait()
    return ""


async def test_files_born_in_new_folders_are_not_missed(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)
        for number in range(60):
            folder = live.two.here / str(number) / "b" / "c" / "d"
            folder.mkdir(parents=True)
            (folder / "f").write_text(str(number))
        await live.until_equal()


async def test_a_switch_of_branches_is_carried_over_as_a_whole(tmp_path: Path) -> None:
    with two_folders(tmp_path):
        pass
    here = tmp_path / "h" / "here"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(here)]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*words: str) -> None:
        subprocess.run([*git, *words], check=True, env=env, timeout=60, capture_output=True)

    run("init", "-q", "-b", "one")
    for number in range(100):
        (here / "src" / f"m{number % 7}").mkdir(parents=True, exist_ok=True)
        (here / "src" / f"m{number % 7}" / f"f{number}").write_text(f"one {number}")
    run("add", ".")
    run("commit", "-q", "-m", "one")
    run("checkout", "-q", "-b", "two")
    run("rm", "-q", "-r", "src/m3")
    for number in range(100):
        (here / "lib" / f"p{number % 9}").mkdir(parents=True, exist_ok=True)
        (here / "lib" / f"p{number % 9}" / f"f{number}").write_text(f"two {number}")
    run("add", ".")
    run("commit", "-q", "-m", "two")
    async with running(tmp_path, mode=Mode.TWO_WAY) as live:
        await live.until_state(LinkState.WATCHING)
        for branch in ("one", "two", "one", "two"):
            await asyncio.to_thread(run, "checkout", "-q", branch)
            await live.until_equal()
        assert not (live.two.there / ".git").exists()


async def test_an_outage_is_waited_for_and_what_happened_meanwhile_is_found(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        (live.two.here / "before").write_text("1")
        await live.until_equal()

        def cut(point: str) -> None:
            raise GuestUnreachable("no answer")

        live.two.guest.fault = cut
        (live.two.here / "during").write_text("2")
        (live.two.here / "before").unlink()
        await live.until_state(LinkState.OFFLINE)
        live.two.guest.fault = lambda point: None
        await live.until_equal()


async def test_a_sandbox_that_is_gone_ends_its_link_with_the_reason(tmp_path: Path) -> None:
    def cut(point: str) -> None:
        raise GuestUnreachable("no answer")

    async def explain(failure: SbxError) -> SbxError:
        return SandboxEnded("it was terminated")

    with two_folders(tmp_path, fault=cut) as two:
        (two.here / "f").write_text("1")
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(SandboxEnded, match="it was terminated"):
                await LiveLink(two.pair, explain=explain).run()


async def test_a_suspended_sandbox_is_waited_for_and_one_started_anew_halts(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        (live.two.here / "f").write_text("1")
        await live.until_equal()

        def suspended(point: str) -> None:
            raise Conflict("it is suspended")

        live.two.guest.fault = suspended
        (live.two.here / "g").write_text("2")
        await live.until_state(LinkState.OFFLINE)
        live.two.guest.epoch = "boot-2"
        live.two.guest.fault = lambda point: None
        await live.until_state(LinkState.HALTED)
        assert live.status.halts == ("guest_root_replaced",)
        assert live.two.both("g") == ("2", None)
        await live.two.pair.start_anew()
        live.link.compare_again()
        await live.until_equal()


async def test_a_folder_moved_away_with_another_in_its_place_halts(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        for name in ("a", "b", "c"):
            (live.two.here / name).write_text("x")
        await live.until_equal()
        live.two.here.rename(live.two.here.with_name("elsewhere"))
        live.two.here.mkdir()
        live.link.hint({b""})
        await live.until_state(LinkState.HALTED)
    assert sorted(os.listdir(tmp_path / "t" / "there")) == ["a", "b", "c"]


async def test_a_paused_link_carries_nothing_over_and_then_everything(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)
        live.link.pause(True)
        await live.until_state(LinkState.PAUSED)
        (live.two.here / "f").write_text("1")
        live.link.hint({b"f"})
        # A turn of everything that could act on it.
        for _ in range(100):
            await asyncio.sleep(0)
        assert live.two.both("f") == ("1", None)
        live.link.pause(False)
        await live.until_equal()


async def test_a_file_that_is_written_all_the_time_does_not_keep_others_waiting(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)
        is_over = asyncio.Event()

        async def write() -> None:
            with (live.two.here / "log").open("ab", 0) as log:
                while not is_over.is_set():
                    log.write(b"line\n")
                    await asyncio.sleep(0.005)

        writing = asyncio.create_task(write())
        for number in range(5):
            (live.two.here / f"f{number}").write_text("x")
            await live.until(lambda name=f"f{number}": live.two.both(name) == ("x", "x"))  # type: ignore[misc]
        await live.until(lambda: bool(live.two.both("log")[1]))
        is_over.set()
        await writing
        await live.until_equal()


async def test_a_full_disk_is_told_and_what_did_not_fit_comes_when_there_is_room(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)

        def full(point: str) -> None:
            if point == "sending":
                raise QuotaExceeded("the disk is full")

        live.two.guest.fault = full
        (live.two.here / "big").write_bytes(bytes(5 * 1024 * 1024))
        await live.until(
            lambda: live.status.problems == {b"big": "disk_full"} or live.status.state is LinkState.OFFLINE
        )
        live.two.guest.fault = lambda point: None
        await live.until_equal()
        await live.until(lambda: not live.status.problems)


async def test_a_new_file_beside_the_sandboxs_own_leaves_those_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.until_state(LinkState.WATCHING)
        (live.two.there / "d").mkdir()
        (live.two.there / "d" / "x").write_text("theirs")
        (live.two.here / "d").mkdir()
        (live.two.here / "d" / "y").write_text("mine")
        await live.until(lambda: live.two.both("d/y") == ("mine", "mine"))
        assert live.two.both("d/x") == (None, "theirs")


async def test_a_two_way_link_takes_the_sandboxs_changes_over_and_echoes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, mode=Mode.TWO_WAY) as live:
        await live.until_state(LinkState.WATCHING)
        (live.two.there / "d").mkdir()
        (live.two.there / "d" / "theirs").write_text("1")
        live.two.guest.tell(b"d/theirs")
        await live.until_equal()
        (live.two.here / "mine").write_text("2")
        await live.until_equal()
        (live.two.there / "mine").unlink()
        (live.two.here / "d" / "theirs").unlink()
        live.two.guest.tell(b"mine")
        await live.until(lambda: tree(live.two.here) == {"d": "dir"} == tree(live.two.there))
        await live.until(lambda: live.status.pulled == 3)
        assert live.two.guest.sent == [b"mine"]


async def test_a_two_way_link_leaves_both_versions_of_what_both_edited(tmp_path: Path) -> None:
    async with running(tmp_path, mode=Mode.TWO_WAY) as live:
        (live.two.here / "p").write_text("base")
        await live.until_equal()
        (live.two.there / "p").write_text("theirs")
        (live.two.here / "p").write_text("mine")
        (live.two.here / "q").write_text("other")
        live.two.guest.tell(b"p")
        await live.until(lambda: live.status.conflicts == (b"p",) and live.two.both("q")[1] == "other")
        assert live.two.both("p") == ("mine", "theirs")


async def test_an_edit_beats_a_deletion_on_the_other_side(tmp_path: Path) -> None:
    async with running(tmp_path, mode=Mode.TWO_WAY) as live:
        for name in ("a", "b"):
            (live.two.here / name).write_text("base")
        await live.until_equal()
        live.link.pause(True)
        await live.until_state(LinkState.PAUSED)
        (live.two.here / "a").unlink()
        (live.two.there / "a").write_text("edited there")
        (live.two.here / "b").write_text("edited here")
        (live.two.there / "b").unlink()
        live.link.pause(False)
        await live.until(
            lambda: tree(live.two.here) == tree(live.two.there) == {"a": "edited there", "b": "edited here"}
        )
