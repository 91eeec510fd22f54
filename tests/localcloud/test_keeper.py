"""The keeper's parts on their own: its socket, its log, its lock, its uid, and dialling what a guest controls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sbxtui.core.errors import GuestUnreachable, UsageError
from sbxtui.core.kills import Kill
from sbxtui.localcloud.keeper_client import dial_bridge
from sbxtui.localcloud.keeper_control import Client, Control
from sbxtui.localcloud.keeper_log import GuestLog
from sbxtui.localcloud.keeper_place import lock_keeper, remove_trees, take_uid
from sbxtui.localcloud.spec import KeeperState, KeeperStatus, SandboxSpec
from sbxtui.localcloud.treewalk import usage_of


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    """A spec nobody starts."""
    return SandboxSpec(
        sandbox_id="one",
        image_name="sbx-base",
        memory_mib=512,
        vcpus=1,
        disk_mib=100,
        pids_max=64,
        tmpfs_mib=64,
        sandbox_dir=tmp_path / "t",
        control_dir=Path("/tmp/c"),
        keeper_socket=Path("/tmp/k"),
        runtime="bubblewrap",
        env={"SECRET": "hunter2"},
    )


def test_a_spec_survives_json_and_never_shows_its_environment(spec: SandboxSpec) -> None:
    assert SandboxSpec.from_json(spec.to_json()) == spec
    assert "hunter2" not in repr(spec)


def test_a_spec_of_a_newer_version_is_read_without_what_is_new(spec: SandboxSpec) -> None:
    newer = json.dumps(json.loads(spec.to_json()) | {"from_the_future": 1})
    assert SandboxSpec.from_json(newer) == spec


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"sandbox_id": 1}'])
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises((ValueError, AttributeError)):
        SandboxSpec.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"memory_mib": 1},
        {"pids_max": 1},
        {"vcpus": 0},
        {"sandbox_dir": Path("relative")},
        {"control_dir": Path("/tmp") / ("x" * 100)},
    ],
)
def test_a_spec_that_cannot_be_built_is_a_usage_error(spec: SandboxSpec, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        replace(spec, **change).check()


def test_a_status_survives_json() -> None:
    kill = Kill("2026-01-01T00:00:00.000Z", "memory", 7, "python3", 2, 1)
    status = KeeperStatus(
        KeeperState.RUNNING, 1, None, 2, 3, 4, (kill,), 1, "bubblewrap", "words", {"memory": "cgroup"}
    )
    assert KeeperStatus.from_dict(json.loads(json.dumps(status.to_dict()))) == status


def test_only_one_holds_the_lock_and_a_removed_file_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "one.lock"
    first = lock_keeper(path)
    assert first is not None
    assert lock_keeper(path) is None
    path.unlink()
    os.close(first)
    second = lock_keeper(path)
    assert second is not None and path.exists()
    os.close(second)


def test_two_running_sandboxes_never_share_a_uid() -> None:
    first, second = take_uid("same"), take_uid("same")
    assert first.uid != second.uid
    first.holder.close()
    assert take_uid("same").uid == first.uid
    second.holder.close()


def test_trees_of_a_guest_are_removed_whatever_it_did_to_them(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(kept)
    (work / "closed").mkdir()
    (work / "closed" / "file").touch()
    (work / "closed").chmod(0)
    descriptor = os.open(work, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=descriptor)
        deeper = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
    remove_trees([work, tmp_path / "missing"])
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "file").exists()


def test_the_bytes_of_a_tree_count_each_file_once_and_follow_no_link(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    empty = usage_of(work).size_bytes
    (tmp_path / "outside").write_bytes(bytes(1 << 20))
    (work / "link").symlink_to(tmp_path)
    (work / "file").write_bytes(os.urandom(1 << 20))
    os.link(work / "file", work / "again")
    os.sync()
    assert 1 << 20 <= usage_of(work).size_bytes - empty < 2 << 20


def test_the_log_of_a_guest_cannot_grow_without_end(tmp_path: Path) -> None:
    selector = selectors.DefaultSelector()
    log = GuestLog(tmp_path / "log", selector)
    for _ in range(40):
        os.write(log.write_fd, bytes(60_000))
        log.refill()
        for key, _ in selector.select(5):
            key.data()
    log.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"log", "log.1"}
    assert sum(sizes.values()) < 1_200_000


_KEEPER_WITH_A_FLOOD = """
import os, selectors, sys
from pathlib import Path
from sbxtui.localcloud.keeper_end import say
from sbxtui.localcloud.keeper_log import GuestLog
selector = selectors.DefaultSelector()
log = GuestLog(Path(sys.argv[1]), selector)
for _ in range(60):
    os.write(log.write_fd, bytes(60_000))
    log.refill()
    for key, _ in selector.select(5):
        key.data()
say("the last words of the keeper")
log.close()
"""


def test_what_the_keeper_says_is_in_its_log_however_much_its_guest_prints(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("ab") as own:
        subprocess.run([sys.executable, "-c", _KEEPER_WITH_A_FLOOD, str(file)], stdout=own, stderr=own, check=True)
    assert b"the last words of the keeper" in file.read_bytes()


def test_a_log_that_cannot_be_opened_anew_goes_on_where_it_is_and_turns_over_later(tmp_path: Path) -> None:
    selector = selectors.DefaultSelector()
    log = GuestLog(tmp_path / "log", selector)

    def flood() -> None:
        for _ in range(20):
            os.write(log.write_fd, bytes(60_000))
            log.refill()
            for key, _ in selector.select(5):
                key.data()

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        flood()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["log.1"]
    flood()
    log.close()
    assert {path.name: path.stat().st_size > 0 for path in tmp_path.iterdir()} == {"log": True, "log.1": True}


def test_a_guest_that_prints_without_end_is_read_at_a_walk(tmp_path: Path) -> None:
    selector = selectors.DefaultSelector()
    log = GuestLog(tmp_path / "log", selector)
    written = 0
    os.set_blocking(log.write_fd, False)
    while selector.get_map():
        with contextlib.suppress(BlockingIOError):
            written += os.write(log.write_fd, bytes(60_000))
        for key, _ in selector.select(5):
            key.data()
    assert written < 1_000_000
    log.refill()
    assert selector.get_map()
    log.close()


class _Served:
    """A control socket in a thread that answers `echo` at once and `later` when told."""

    def __init__(self, path: Path) -> None:
        self._selector = selectors.DefaultSelector()
        self.control = Control(path, self._selector, self._handle)
        self._is_done = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _handle(self, client: Client, request: dict[str, Any]) -> dict[str, Any] | None:
        del client
        if request.get("op") == "flush":
            for waiting in self.control.waiting:
                self.control.answer(waiting, {"late": True})
        return None if request.get("op") == "later" else {"echo": request}

    def _serve(self) -> None:
        while not self._is_done:
            for key, _ in self._selector.select(0.05):
                key.data()

    def close(self) -> None:
        self._is_done = True
        self._thread.join()
        self.control.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """The path of a control socket that is served."""
    server = _Served(tmp_path / "k")
    yield tmp_path / "k"
    server.close()


def _connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    client.connect(str(path))
    return client


def test_requests_in_pieces_and_several_at_once_are_answered_in_order(served: Path) -> None:
    with _connect(served) as client, client.makefile("r") as replies:
        client.sendall(b'{"n": 1}\n{"n"')
        client.sendall(b": 2}\nnonsense\n")
        assert [json.loads(replies.readline()) for _ in range(2)] == [{"echo": {"n": 1}}, {"echo": {"n": 2}}]
        assert "error" in json.loads(replies.readline())


def test_a_late_answer_reaches_who_waits(served: Path) -> None:
    with _connect(served) as waiting, _connect(served) as other:
        waiting.sendall(b'{"op": "later"}\n')
        while True:
            other.sendall(b'{"op": "flush"}\n')
            other.recv(100)
            waiting.settimeout(0.05)
            try:
                assert json.loads(waiting.recv(100)) == {"late": True}
                break
            except TimeoutError:
                continue


def test_a_request_without_end_is_cut(served: Path) -> None:
    with _connect(served) as client:
        with pytest.raises(OSError):
            for _ in range(10):
                client.sendall(bytes(65_536))
            client.recv(1)
            raise ConnectionResetError
        with _connect(served) as other:
            other.sendall(b"{}\n")
            assert json.loads(other.recv(100)) == {"echo": {}}


def test_a_control_socket_is_its_owners_alone(served: Path) -> None:
    assert served.stat().st_mode & 0o777 == 0o600


async def test_a_link_in_the_place_of_the_bridge_is_not_followed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as victim:
        victim.bind(str(tmp_path / "victim"))
        victim.listen()
        victim.setblocking(False)
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "in.sock").symlink_to(tmp_path / "victim")
        with pytest.raises(GuestUnreachable):
            await dial_bridge(tmp_path / "c", 80)
        with pytest.raises(BlockingIOError):
            victim.accept()


@pytest.mark.parametrize("kind", ["file", "pipe", "folder", "nothing"])
async def test_what_is_no_socket_is_not_dialled(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "in.sock"
    match kind:
        case "file":
            place.touch()
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
    async with asyncio.timeout(5):
        with pytest.raises(GuestUnreachable):
            await dial_bridge(tmp_path, 80)


@pytest.mark.parametrize(("answer", "error"), [(b"-", ConnectionRefusedError), (b"", GuestUnreachable)])
async def test_a_bridge_that_refuses_or_hangs_up_is_told_apart(
    answer: bytes, error: type[Exception], tmp_path: Path
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"80\n"
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / "in.sock"):
        with pytest.raises(error):
            await dial_bridge(tmp_path, 80)
