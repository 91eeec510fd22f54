"""More at once than watchers take: stopped processes, too few watches, renames without end, readers that never stop."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.status import LinkState
from tests.services.sync.pairs import two_folders
from tests.services.sync.processes import Started, started
from tests.services.sync.test_link import running, tree

DEADLINE_S = 300.0
# More than the kernel keeps for a watcher that does not read.
_MANY_FILES = 20_000
_FEW_WATCHES = ("unshare", "--user", "--map-root-user", "sh", "-c")
_LIMITED = 'echo 100 > /proc/sys/user/max_inotify_watches && exec "$@"'


def until_equal(root: Path) -> None:
    """Both folders below a root hold the same names and contents."""
    deadline_s = time.monotonic() + DEADLINE_S
    while tree(root / "h" / "here") != tree(root / "t" / "there"):
        assert time.monotonic() < deadline_s, "they did not become equal"
        time.sleep(0.1)


def hear_until(living: Started, words: str) -> str:
    while words not in (line := living.hear()):
        pass
    return line


@pytest.mark.soak
def test_what_was_written_while_the_link_was_stopped_is_found_though_the_watcher_lost_it(tmp_path: Path) -> None:
    here = tmp_path / "h" / "here"
    here.mkdir(parents=True)
    with started("living", tmp_path, Mode.PUSH.value) as living:
        hear_until(living, "watching")
        (here / "first").touch()
        until_equal(tmp_path)
        os.kill(living.process.pid, signal.SIGSTOP)
        for number in range(_MANY_FILES):
            (here / f"f{number}").touch()
        os.kill(living.process.pid, signal.SIGCONT)
        hear_until(living, "lost")
        until_equal(tmp_path)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_with_too_few_watches_it_goes_on_by_looking_and_names_the_setting(tmp_path: Path) -> None:
    limited = (*_FEW_WATCHES, _LIMITED, "sh")
    if subprocess.run([*limited, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this process may not make user namespaces")
    here = tmp_path / "h" / "here"
    for number in range(300):
        (here / f"d{number}").mkdir(parents=True)
    with started("living", tmp_path, Mode.PUSH.value, under=limited) as living:
        assert "max_user_watches" in hear_until(living, "too many")
        (here / "d299" / "f").write_text("x")
        (here / "new" / "deep").mkdir(parents=True)
        until_equal(tmp_path)


@pytest.mark.long
async def test_no_old_name_comes_back_while_folders_are_renamed_again_and_again(tmp_path: Path) -> None:
    async with running(tmp_path, mode=Mode.TWO_WAY) as live:
        await live.until_state(LinkState.WATCHING)
        here, there = live.two.here, live.two.there
        for number in range(20):
            (here / f"d{number}").mkdir()
            (here / f"d{number}" / "f").write_text(f"{number}")
        await live.until_equal()
        old: set[str] = set()
        for turn in range(3):
            for number, path in enumerate(sorted(here.iterdir())):
                old.add(path.name)
                path.rename(here / f"t{turn}-{number}")
            assert not old & set(os.listdir(here))
            await live.until_equal()
            assert not old & set(os.listdir(here)) and not old & set(os.listdir(there))
            assert len(os.listdir(there)) == 20


@pytest.mark.long
async def test_whoever_reads_a_file_in_the_sandbox_sees_one_version_whole_at_each_update(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        size = 1_000_000
        (two.here / "f").write_bytes(bytes([255]) * size)
        await two.cycle.compare()
        mixed: list[int] = []
        is_over = threading.Event()

        def read() -> None:
            while not is_over.is_set():
                content = (two.there / "f").read_bytes()
                if len(content) != size or len(set(content[::997])) != 1:
                    mixed.append(len(content))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for number in range(60):
                (two.here / "f").write_bytes(bytes([number]) * size)
                await two.cycle.follow({b"f"})
        finally:
            is_over.set()
            reader.join()
        assert not mixed
        assert (two.there / "f").read_bytes() == bytes([59]) * size


async def test_empty_files_and_files_that_were_emptied_arrive(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "empty").touch()
        (two.here / "emptied").write_text("full")
        await two.cycle.compare()
        (two.here / "emptied").write_text("")
        await two.cycle.follow({b"emptied"})
        assert two.both("empty") == ("", "") and two.both("emptied") == ("", "")


async def test_a_sparse_file_arrives_with_its_size(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        with (two.here / "sparse").open("wb") as file:
            file.truncate(32 << 20)
            file.seek(10 << 20)
            file.write(b"data")
        await two.cycle.compare()
        assert (two.there / "sparse").read_bytes() == (two.here / "sparse").read_bytes()


async def test_a_name_that_changes_in_its_case_only_is_renamed_there_too(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        (two.here / "Core").write_text("x")
        await two.cycle.compare()
        (two.here / "Core").rename(two.here / "core")
        await two.cycle.follow({b"Core", b"core"})
        assert os.listdir(two.there) == ["core"] and two.both("core") == ("x", "x")


async def test_folders_of_which_only_the_old_names_were_hinted_at_are_no_lost_folder(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        for name in ("a", "b"):
            (two.here / name).mkdir()
            (two.here / name / "f").write_text(name)
        await two.cycle.compare()
        for name in ("a", "b"):
            (two.here / name).rename(two.here / f"new-{name}")
        await two.cycle.follow({b"a", b"b"})
        assert two.cycle.status.halts == ()
        assert sorted(os.listdir(two.there)) == ["new-a", "new-b"] and two.both("new-a/f") == ("a", "a")
