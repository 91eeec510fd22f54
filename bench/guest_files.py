"""Files of a sandbox: contents through the guest's API against a plain socket, and the bridge alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.guest import child, peak_rss_bytes, running_guest, wait_for
from bench.support import Row, interleaved
from sbxtui.guest.client import GuestClient

MIB = 2**20
SIZE_BYTES = 100 * MIB
_BLOCK = bytes(MIB)
_ROUNDS = 5
_SMALL_FILES = 3_000


def run() -> list[Row]:
    """Measure on a guest and a bridge of our own; both end with this call."""
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as name:
        folder = Path(name)
        with running_guest(folder) as (port, pid), _sink() as sink_port, _bridge(folder) as bridge_path:
            return [*_contents(folder, port, pid, sink_port), _tree(folder, port), _relay(bridge_path, sink_port)]


def _contents(folder: Path, port: int, pid: int, sink_port: int) -> list[Row]:
    url = f"http://127.0.0.1:{port}"
    before = peak_rss_bytes(pid)
    put_s, file_s, get_s, socket_s = interleaved(
        lambda: asyncio.run(_put(url)),
        lambda: _write_plainly(folder / "plain"),
        lambda: asyncio.run(_get(url)),
        lambda: _push(socket.create_connection(("127.0.0.1", sink_port))),
        rounds=_ROUNDS,
    )
    grown_mib = (peak_rss_bytes(pid) - before) / MIB
    return [
        ("put 100 MiB, fsync included", _speed(put_s), f"{_speed(file_s)} write and fsync, {put_s / file_s:.2f} ×"),
        ("get 100 MiB", _speed(get_s), f"{_speed(socket_s)} plain socket, {get_s / socket_s:.2f} ×"),
        ("guest memory grown by both", f"{grown_mib:.1f} MiB", "at most 20 MiB"),
    ]


def _tree(folder: Path, port: int) -> Row:
    source = folder / "small"
    source.mkdir()
    for number in range(_SMALL_FILES):
        (source / f"{number}").write_bytes(b"x" * 1_000)
    began = time.perf_counter()
    asyncio.run(_upload_tree(f"http://127.0.0.1:{port}", source))
    per_s = _SMALL_FILES / (time.perf_counter() - began)
    return (f"{_SMALL_FILES} files of 1 kB as a tree", f"{per_s:.0f} files/s", "at least 3000 files/s")


def _relay(path: Path, sink_port: int) -> Row:
    through_s, direct_s = interleaved(
        lambda: _push(_dial(path, sink_port)),
        lambda: _push(socket.create_connection(("127.0.0.1", sink_port))),
        rounds=_ROUNDS,
    )
    return ("bridge, 100 MiB", _speed(through_s), f"{_speed(direct_s)} plain socket, {through_s / direct_s:.2f} ×")


def _speed(duration_s: float) -> str:
    return f"{SIZE_BYTES / duration_s / 1e6:.0f} MB/s"


async def _blocks() -> AsyncIterator[bytes]:
    for _ in range(SIZE_BYTES // MIB):
        yield _BLOCK


async def _put(url: str) -> float:
    async with GuestClient(url, None) as guest:
        began = time.perf_counter()
        await guest.files.upload("big", _blocks(), size_bytes=SIZE_BYTES)
        return time.perf_counter() - began


async def _get(url: str) -> float:
    async with GuestClient(url, None) as guest:
        began = time.perf_counter()
        async with guest.files.download("big") as download:
            received = 0
            async for chunk in download.chunks:
                received += len(chunk)
        if received != SIZE_BYTES:
            raise RuntimeError(f"{received} bytes came back")
        return time.perf_counter() - began


async def _upload_tree(url: str, source: Path) -> None:
    async with GuestClient(url, None) as guest:
        await guest.files.upload_tree(source, "tree")


def _write_plainly(path: Path) -> float:
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(SIZE_BYTES // MIB):
            file.write(_BLOCK)
        os.fsync(file.fileno())
    return time.perf_counter() - began


def _push(connection: socket.socket) -> float:
    """Send everything, and wait until the other side has it."""
    with connection:
        began = time.perf_counter()
        for _ in range(SIZE_BYTES // MIB):
            connection.sendall(_BLOCK)
        connection.shutdown(socket.SHUT_WR)
        if int(connection.recv(32)) != SIZE_BYTES:
            raise RuntimeError("bytes were lost")
        return time.perf_counter() - began


def _dial(path: Path, port: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    connection.sendall(b"%d\n" % port)
    if connection.recv(1) != b"+":
        raise RuntimeError("the bridge refused")
    return connection


@contextmanager
def _sink() -> Iterator[int]:
    """A server that counts to the end of each connection and says how much it was."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        buffer = bytearray(MIB)
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    total = 0
                    while count := connection.recv_into(buffer):
                        total += count
                    connection.sendall(str(total).encode())

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@contextmanager
def _bridge(folder: Path) -> Iterator[Path]:
    path = folder / "in.sock"
    with child(["-m", "sbxguest.bridge", str(path)], {}, subprocess.DEVNULL):
        wait_for(path.exists)
        yield path
