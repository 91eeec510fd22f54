"""A server in a sandbox through `sbx forward`, against a direct connection and against nginx before it.

All on loopback: the server, the guest, the forward and the load are processes of their own. nginx and the proxy mode
are one hop, a tunnel two; where nginx is missing its rows say so. The proxy mode meets an endpoint that speaks TLS, as
each does, and so does the nginx beside it; that endpoint is another nginx, and without one there is no TLS. Far away is
behind a delay of 20 ms there and back, which each of them has on its way to the server or the guest.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bench.bridge import bridge
from bench.support import Row, asked, milliseconds, serving
from sbxtui.localcloud.ca import server_context
from tests.support.forwarding import forwarded, proxied
from tests.support.guest_process import running_guest

_SMALL = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b"x" * 100
_BIG_BYTES = 256 * 1024 * 1024
_PIECE = bytes(256 * 1024)
_GETS = 2_000
_AT_ONCE = 32
_OF_BROWSER, _GETS_FAR, _DELAY_S = 6, 50, 0.01
_UPGRADE = b"GET /echo HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n"
_UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n"
_MESSAGE = b"m" * 64
_GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
_DOWN = b"GET /big HTTP/1.1\r\nhost: localhost\r\n\r\n"
_GIB = 1 << 30
_TOKEN = "x" * 900
_NGINX = """
daemon off; user root root; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ }}
http {{
  access_log off; client_max_body_size 0; proxy_request_buffering off; proxy_buffering off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder};
  scgi_temp_path {folder};
  upstream app {{ server {server}; keepalive 64; }}
  server {{ listen 127.0.0.1:{own}{listen}; keepalive_requests 1000000;
    proxy_http_version 1.1; {more}
    location / {{ proxy_pass {scheme}://app; proxy_set_header Connection ""; {headers} }}
    location /echo {{ proxy_pass {scheme}://app; proxy_set_header Connection upgrade; proxy_set_header Upgrade echo;
      {headers} }} }}
}}
"""
ENDPOINT = {
    "listen": " ssl",
    "more": "ssl_certificate {tls}/endpoint.pem; ssl_certificate_key {tls}/endpoint.pem;",
    "scheme": "http",
    "headers": "",
}
_BEFORE_ENDPOINT = {
    "listen": "",
    "more": "",
    "scheme": "https",
    "headers": f"proxy_set_header X-aws-proxy-auth {_TOKEN};",
}
_BEFORE_SERVER = {**_BEFORE_ENDPOINT, "scheme": "http"}


def run() -> list[Row]:
    """Small requests one by one and many at once, bulk both ways, and small ones beside bulk."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name, child("serve") as (port, _):
        folder = Path(name)
        async with running_guest(folder) as guest:
            figures["direct"] = await _measured(port)
            with child("tunnel", guest.url, str(port)) as (own, forward):
                figures["tunnel"] = await _measured_with_memory(own, forward.pid)
            async with nginx(folder / "nginx", port, _BEFORE_SERVER) as own:
                figures["nginx"] = await _measured(own) if own else {}
            await _measure_proxy(folder, port, figures)
            with child("delay", str(guest.port)) as (far, _), child("tunnel", _url(far), str(port)) as (own, _):
                figures["tunnel"] |= await _measured_far(own)
            with child("delay", str(port)) as (far, _):
                with child("proxy", _url(far), str(port)) as (own, _):
                    figures["proxy"] |= await _measured_far(own)
                async with nginx(folder / "far", far, _BEFORE_SERVER) as own:
                    beside = await _measured_far(own) if own else {}
                figures["nginx"] |= beside
                figures["nginx, TLS"] |= beside
    return [*_rows("tunnel", figures, "nginx"), *_rows("proxy", figures, "nginx, TLS")]


async def _measure_proxy(folder: Path, port: int, figures: dict[str, dict[str, float]]) -> None:
    _, ca_file = server_context(folder / "tls")
    async with nginx(folder / "endpoint", port, ENDPOINT) as endpoint:
        address = f"127.0.0.1:{endpoint}" if endpoint else _url(port)
        with child("proxy", address, str(port), str(ca_file)) as (own, forward):
            figures["proxy"] = await _measured_with_memory(own, forward.pid)
        async with nginx(folder / "before", endpoint, _BEFORE_ENDPOINT) as own:
            figures["nginx, TLS"] = await _measured(own) if own else {}


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _rows(mode: str, figures: dict[str, dict[str, float]], nginx: str) -> list[Row]:
    rows: list[Row] = []
    for what, figure in figures[mode].items():
        shown = milliseconds(figure)
        if "MB/s" in what or "MiB" in what:
            shown = f"{figure:.0f} {'MB/s' if 'MB/s' in what else 'MiB'}"
        against = [
            f"{figure / figures[other][what]:.2f} × {other}" for other in ("direct", nginx) if what in figures[other]
        ]
        rows.append((f"{mode}: {what}", shown, ", ".join(against)))
    return rows


async def _measured_with_memory(port: int, pid: int) -> dict[str, float]:
    before_kib = _peak_kib(pid)
    figures = await _measured(port)
    await _bulk(port, _up(_GIB))
    grown_mib = (_peak_kib(pid) - before_kib) / 1024
    return {**figures, "memory it grew by, all this and 1 GiB up, MiB": grown_mib}


async def _measured_far(port: int) -> dict[str, float]:
    """Six connections of a browser, far away."""
    await asyncio.gather(*(_gets(port, 2) for _ in range(_OF_BROWSER)))
    began = time.perf_counter()
    await asyncio.gather(*(_gets(port, _GETS_FAR) for _ in range(_OF_BROWSER)))
    took_s = (time.perf_counter() - began) / (_GETS_FAR * _OF_BROWSER)
    return {f"20 ms away, small GET, {_OF_BROWSER} connections, per request": took_s}


async def _measured(port: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    took_s = await _gets(port, _GETS)
    figures["small GET p50"] = statistics.median(took_s)
    figures["small GET p99"] = statistics.quantiles(took_s, n=100)[98]
    began = time.perf_counter()
    await asyncio.gather(*(_gets(port, _GETS // 8) for _ in range(_AT_ONCE)))
    figures[f"small GET, {_AT_ONCE} connections, per request"] = (time.perf_counter() - began) / (_GETS // 8 * _AT_ONCE)
    figures["upgraded, 64 bytes and back p50"] = statistics.median(await _echoes(port, _GETS))
    figures["download MB/s"] = await _bulk(port, _DOWN)
    figures["upload MB/s"] = await _bulk(port, _up(_BIG_BYTES))
    loading = asyncio.create_task(_bulk(port, _DOWN))
    beside: list[float] = []
    while not loading.done():
        beside += await _gets(port, 5)
    await loading
    figures["small GET p50 beside a download"] = statistics.median(beside)
    return figures


async def _echoes(port: int, count: int) -> list[float]:
    """Seconds for each message of an upgraded connection to come back: frames are nobody's business on the way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    took_s: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        writer.write(_MESSAGE)
        await reader.readexactly(len(_MESSAGE))
        took_s.append(time.perf_counter() - began)
    writer.close()
    return took_s


async def _gets(port: int, count: int) -> list[float]:
    streams = await asyncio.open_connection("127.0.0.1", port)
    took_s = await asked(streams, count, _GET)
    streams[1].close()
    return took_s


def _up(size_bytes: int) -> bytes:
    return b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % size_bytes


def _body_bytes(head: bytes) -> int:
    return int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)


async def _bulk(port: int, request: bytes) -> float:
    """MB/s of one large body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=len(_PIECE) * 2)
    began = time.perf_counter()
    writer.write(request)
    up_bytes = _body_bytes(request)
    for _ in range(up_bytes // len(_PIECE)):
        writer.write(_PIECE)
        await writer.drain()
    left = down_bytes = _body_bytes(await reader.readuntil(b"\r\n\r\n"))
    while left:
        left -= len(await reader.read(min(left, len(_PIECE))))
    writer.close()
    return max(up_bytes, down_bytes) / 1e6 / (time.perf_counter() - began)


# A process of this module in another role, and the port it printed.
child = partial(serving, "bench.forward")


@asynccontextmanager
async def nginx(folder: Path, port: int | Path, place: dict[str, str]) -> AsyncIterator[int]:
    """nginx before what listens on a port, or on a unix socket; 0 where there is none."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None or not port:
        yield 0
        return
    folder.mkdir()
    settings = {**place, "more": place["more"].format(tls=folder.parent / "tls")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = int(free.getsockname()[1])
    config = folder / "nginx.conf"
    server = f"unix:{port}" if isinstance(port, Path) else f"127.0.0.1:{port}"
    config.write_text(_NGINX.format(folder=folder, server=server, own=own, **settings))
    process = subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - once
    try:
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(OSError):
                    await asyncio.open_connection("127.0.0.1", own)
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
            if head.startswith(b"GET /echo"):
                writer.write(_UPGRADED)
                while data := await reader.read(1 << 16):
                    writer.write(data)
                return
            if head.startswith(b"POST"):
                left = _body_bytes(head)
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


async def _delay(port: int) -> None:
    """A relay that holds every byte for a while, however many are under way."""
    loop = asyncio.get_running_loop()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 18):
            loop.call_later(_DELAY_S, writer.write, data)
        loop.call_later(_DELAY_S, writer.close)

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _forward(mode: str, url: str, port: int, ca_file: str = "") -> None:
    verify = ssl.create_default_context(cafile=ca_file) if ca_file else True
    through = proxied(url, port, tokens=[_TOKEN], connections=62, verify=verify)
    async with forwarded(url, port) if mode == "tunnel" else through as forward:
        print(forward.local_port, flush=True)
        await asyncio.Event().wait()


async def _act(role: str, *words: str) -> None:
    match role:
        case "serve":
            await _serve()
        case "delay":
            await _delay(int(words[0]))
        case "bridge":
            await bridge(Path(words[0]), int(words[1]))
        case _:
            await _forward(role, words[0], int(words[1]), *words[2:])


if __name__ == "__main__":
    asyncio.run(_act(*sys.argv[1:]))
