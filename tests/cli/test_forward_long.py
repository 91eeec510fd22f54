"""Forwards over a minute of sleep, and what of them is left in files, on each isolation that works here."""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sbxtui.settings import load
from tests.cli.test_forward import SERVER, connected, echoes, listed, live, until
from tests.support.sandboxes import point_to_runsc, require_runtime
from tests.support.sbx import Sbx, sbx_home

pytestmark = pytest.mark.slow
ASLEEP_S = 60.0


@pytest.fixture(params=["bubblewrap", "gvisor"])
def isolated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sbx]:
    """An `sbx` whose sandboxes are isolated in one way."""
    with sbx_home(tmp_path / "home", SBX_ISOLATION=request.param) as sbx:
        images = load(sbx.environment(), cwd=tmp_path).home.trees_dir / ".images"
        images.mkdir(mode=0o711, parents=True, exist_ok=True)
        point_to_runsc(images)
        require_runtime(request.param, images)
        yield sbx
        # A reset keeps what was set up; of a test nothing is to be kept.
        (images / "runsc.json").unlink(missing_ok=True)


def test_open_streams_sleep_for_a_minute_unasked_and_go_on(isolated: Sbx) -> None:
    sbx = isolated
    sbx.ok("create", "sleepy", "--memory", "512", "--idle", "600")
    sbx.ok("exec", "--detach", "sleepy", "--", "python3", "-c", SERVER)
    until(lambda: [one["port"] for one in sbx.ok("ports", "sleepy", "--json").json] == [7000])
    with live(sbx, "sleepy", ":7000") as (_, told):
        streams = [connected(told) for _ in range(5)]
        readers = [stream.makefile("rb") for stream in streams]
        for at, stream in enumerate(streams):
            stream.sendall(b"before %d\n" % at)
            assert readers[at].readline() == b"before %d\n" % at
        sbx.ok("stop", "sleepy")
        until(lambda: listed(sbx, "sleepy")["state"] == "suspended")
        end = time.monotonic() + ASLEEP_S
        # Tabs that only wait wake nothing.
        until(lambda: _is_asleep(sbx) and time.monotonic() > end)
        for at, stream in enumerate(streams):
            stream.sendall(b"after %d\n" % at)
        for at, reader in enumerate(readers):
            assert reader.readline() == b"after %d\n" % at
            streams[at].close()
        assert listed(sbx, "sleepy")["last_error"] == ""


def _is_asleep(sbx: Sbx) -> bool:
    state = sbx.ok("ps", "sleepy", "--json").json["state"]
    assert state == "SUSPENDED"
    return True


def test_no_token_is_in_any_file_or_on_any_command_line(isolated: Sbx) -> None:
    sbx = isolated
    sbx.ok("create", "app", "--memory", "512")
    sbx.ok("exec", "--detach", "app", "--", "python3", "-c", SERVER)
    until(lambda: [one["port"] for one in sbx.ok("ports", "app", "--json").json] == [7000])
    said = b""
    (detached,) = sbx.ok("forward", "app", ":7000", "--detach", "--json").json
    for mode in ("tunnel", "proxy"):
        with live(sbx, "app", ":7000", "--mode", mode, "--debug") as (process, told):
            _asks(told["local_port"])
            lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
            process.terminate()
            out, err = process.communicate(timeout=60)
            said += out + err + b"".join(lines)
    assert echoes(detached["local_port"])
    store = sbx.home / "state" / "store.db"
    with closing(sqlite3.connect(store)) as opened:
        tokens = [value.encode() for (value,) in opened.execute("SELECT value FROM tokens")]
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert len(tokens) >= 2
    files = [path for path in sbx.home.rglob("*") if path.is_file() and not path.name.startswith("store.db")]
    holding = [str(path) for path in files for token in tokens if token in _read(path)]
    assert holding == [] and not any(token in said for token in tokens)
    sbx.ok("forward", "stop", "app")


def _asks(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        client.recv(1000)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
