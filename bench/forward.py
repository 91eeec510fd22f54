"""A server in a sandbox through `sbx forward`, against a direct connection and against nginx before it.

All on loopback and without TLS: the server, the guest, the forward and the load are processes of their own. nginx is
one hop, a forward two; where nginx is missing its rows say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from bench.support import Row, milliseconds
from tests.support.forwarding import forwarded
from tests.support.guest_process import running_guest

_SMALL = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b"x" * 100
_BIG_BYTES = 256 * 1024 * 1024
_PIECE = bytes(256 * 1024)
_GETS = 2_000
_AT_ONCE = 32
_GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
_DOWN = b"GET /big HTTP/1.1\r\nhost: localhost\r\n\r\n"
_UP = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % _BIG_BYTES
_NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ }}
http {{
  access_log off; client_max_body_size 0; proxy_request_buffering off; proxy_buffering off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder};
  scgi_temp_path {folder};
  upstream app {{ server 127.0.0.1:{port}; keepalive 64; }}
  server {{ listen 127.0.0.1:{own}; keepalive_requests 1000000;
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}
"""


def run() -> list[Row]:
    """Small requests one by one and many at once, bulk both ways, and small ones beside bulk."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, _child("serve") as (port, _):
        async with running_guest(Path(folder)) as guest:
            direct = await _measured(port)
            with _child("forward", guest.url, str(port)) as (forward_port, forward):
                before_kib = _peak_kib(forward.pid)
                ours = await _measured(forward_port)
                grown_mib = (_peak_kib(forward.pid) - before_kib) / 1024
            async with _nginx(Path(folder), port) as nginx_port:
                nginx = await _measured(nginx_port) if nginx_port else {}
    rows: list[Row] = []
    for what, figure in ours.items():
        is_rate = what.endswith("MB/s")
        shown = f"{figure:.0f} MB/s" if is_rate else milliseconds(figure)
        against = [f"{figure / direct[what]:.2f} × direct"]
        against.append(f"{figure / nginx[what]:.2f} × nginx" if nginx else "nginx absent")
        rows.append((what, shown, ", ".join(against)))
    return [*rows, (f"memory the forward grew by, {_BIG_BYTES >> 20} MiB each way", f"{grown_mib:.0f} MiB", "")]


async def _measured(port: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    took_s = await _gets(port, _GETS)
    figures["small GET p50"] = statistics.median(took_s)
    figures["small GET p99"] = statistics.quantiles(took_s, n=100)[98]
    began = time.perf_counter()
    await asyncio.gather(*(_gets(port, _GETS // 8) for _ in range(_AT_ONCE)))
    figures[f"small GET, {_AT_ONCE} connections, per request"] = (time.perf_counter() - began) / (_GETS // 8 * _AT_ONCE)
    figures["download MB/s"] = await _bulk(port, _DOWN)
    figures["upload MB/s"] = await _bulk(port, _UP)
    loading = asyncio.create_task(_bulk(port, _DOWN))
    beside: list[float] = []
    while not loading.done():
        beside += await _gets(port, 5)
    await loading
    figures["small GET p50 beside a download"] = statistics.median(beside)
    return figures


async def _gets(port: int, count: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    took_s: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(_GET)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(100)
        took_s.append(time.perf_counter() - began)
    writer.close()
    return took_s


async def _bulk(port: int, request: bytes) -> float:
    """MB/s of one large body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=len(_PIECE) * 2)
    began = time.perf_counter()
    writer.write(request)
    if request is _UP:
        for _ in range(_BIG_BYTES // len(_PIECE)):
            writer.write(_PIECE)
            await writer.drain()
    await reader.readuntil(b"\r\n\r\n")
    left = _BIG_BYTES if request is _DOWN else 100
    while left:
        left -= len(await reader.read(min(left, len(_PIECE))))
    writer.close()
    return _BIG_BYTES / 1e6 / (time.perf_counter() - began)


@contextmanager
def _child(*words: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A process of this module in another role, and the port it printed."""
    process = subprocess.Popen([sys.executable, "-m", "bench.forward", *words], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def _nginx(folder: Path, port: int) -> AsyncIterator[int]:
    """nginx before the server; 0 where there is none."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        yield 0
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = int(free.getsockname()[1])
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, own=own))
    process = subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - once
    try:
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(OSError):
                    await _gets(own, 1)
                    break
                await asyncio.sleep(0.05)
        yield own
    finally:
        process.terminate()
        process.wait()


def _peak_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def _serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                left = _BIG_BYTES
                while left:
                    left -= len(await reader.read(min(left, len(_PIECE))))
            if not head.startswith(b"GET /big"):
                writer.write(_SMALL)
                continue
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % _BIG_BYTES)
            for _ in range(_BIG_BYTES // len(_PIECE)):
                writer.write(_PIECE)
                await writer.drain()


async def _serve() -> None:
    server = await asyncio.start_server(_serve_one, "127.0.0.1", 0, limit=len(_PIECE) * 2)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _forward(url: str, port: int) -> None:
    async with forwarded(url, port) as forward:
        print(forward.local_port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve() if sys.argv[1] == "serve" else _forward(sys.argv[2], int(sys.argv[3])))
