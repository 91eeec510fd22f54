"""Nothing that root inside a sandbox with its own kernel writes beside its socket fills the host or ends the keeper."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sbxtui.localcloud.limits import MIB, Limits
from sbxtui.localcloud.runtimes.base import OwnKernel
from sbxtui.localcloud.runtimes.runsc import Runsc
from sbxtui.localcloud.sentry_watch import SentryWatch
from sbxtui.localcloud.shown import ShownUse

# The kernel that is watched is the test process, which has grown large by the tests before.
LIMITS = Limits(memory_bytes=4096 * MIB, pids=64, vcpus=1, disk_bytes=8 * MIB, tmp_bytes=MIB, shm_bytes=MIB)


@dataclass(slots=True)
class Watched:
    """A watch whose kernel is this process, and how often it killed."""

    folder: Path
    watch: SentryWatch
    killed: list[bool] = field(default_factory=list)


@pytest.fixture
def watched() -> Iterator[Watched]:
    folder = Path(tempfile.mkdtemp(prefix="sbx-w-", dir="/tmp"))
    (folder / "overlay").mkdir()
    control = folder / "c"
    control.mkdir()
    killed: list[bool] = []
    null = os.open(os.devnull, os.O_WRONLY)
    runsc = Runsc("/bin/true", "systrap", folder, null, None, None, folder)
    kernel = OwnKernel(os.getpid(), runsc, (folder / "overlay",))
    with socket.socket(socket.AF_UNIX) as bridge:
        bridge.bind(str(control / "in.sock"))
        shown = ShownUse(folder / "shown", LIMITS.memory_bytes)
        shown.make()
        yield Watched(control, SentryWatch(kernel, LIMITS, control, lambda: killed.append(True), shown), killed)
    os.close(null)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["kills", "open", "other"])
def test_a_huge_file_beside_the_socket_goes_and_a_second_ends_the_sandbox(watched: Watched, name: str) -> None:
    for expected in ([], [True]):
        (watched.folder / name).write_bytes(b"x" * (2 * MIB))
        watched.watch.tick()
        assert not (watched.folder / name).exists()
        assert watched.killed == expected
    assert (watched.folder / "in.sock").is_socket()
    assert watched.watch.kills[-1].limit == "disk"
    assert watched.watch.disk_bytes() >= 2 * MIB


def test_a_folder_with_the_name_of_the_socket_is_no_hiding_place(watched: Watched) -> None:
    (watched.folder / "in.sock").unlink()
    (watched.folder / "in.sock").mkdir()
    (watched.folder / "in.sock" / "big").write_bytes(b"x" * (2 * MIB))
    watched.watch.tick()
    assert list(watched.folder.iterdir()) == []


def test_a_file_without_a_name_that_is_held_open_counts(watched: Watched) -> None:
    with (watched.folder / "big").open("wb") as file:
        (watched.folder / "big").unlink()
        file.write(b"x" * (2 * MIB))
        file.flush()
        watched.watch.tick()
        watched.watch.tick()
    assert watched.killed == [True]


@pytest.mark.parametrize(
    "note",
    [
        '{"limit": "memory", "used": 1e999}',
        pytest.param("[" * 100_000, id="nested too deeply"),
        '{"limit": "memory", "used": NaN}',
        '{"limit": "memory", "pid": [1]}',
        "[]",
        "\\xff",
    ],
)
def test_a_forged_note_is_passed_over_and_the_next_one_is_read(watched: Watched, note: str) -> None:
    (watched.folder / "kills").write_text(note + '\n{"limit": "pids", "used": 9}\n')
    watched.watch.tick()
    assert [(kill.limit, kill.used) for kill in watched.watch.kills] == [("pids", 9)]


def test_numbers_of_a_note_are_bounded(watched: Watched) -> None:
    (watched.folder / "kills").write_text('{"limit": "memory", "used": 1e300, "allowed": -5, "pid": 1e300}\n')
    watched.watch.tick()
    kill = watched.watch.kills[-1]
    assert (kill.used, kill.allowed, kill.pid) == (1 << 53, 0, 1 << 31)


def test_notes_that_are_no_file_are_none(watched: Watched) -> None:
    (watched.folder / "kills").mkdir()
    watched.watch.tick()
    assert not watched.watch.kills
