"""The local cloud: requests through an endpoint, against nginx with TLS and against no proxy at all; calls of its API.

The server, nginx, the local cloud and the load are processes of their own; connections are kept, as clients keep them.
The sandbox is a plain process, so that all lead to the same server, and each through a bridge of its own kind as a
sandbox has it: nginx does what the endpoint does, before the same unix socket. A call is one request that was signed
before: what is measured is who answers, not a client's arithmetic.
"""

from __future__ import annotations

import asyncio
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from bench.forward import ENDPOINT, child, nginx
from bench.support import Row, Streams, asked, milliseconds
from sbxtui.localcloud.ca import server_context
from tests.localcloud.endpoint import Endpoint, run_sandbox
from tests.support.local_cloud import LocalCloud, local_cloud

_GETS, _ROUNDS = 500, 5
_AT_ONCE = 8
_CALLS = 400
_BIG_BYTES = 256 * 1024 * 1024
_BODY = b"x" * 200

Connected = Callable[[], Awaitable[Streams]]


def run() -> list[Row]:
    """Small requests one by one and many at once, a download, and calls."""
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as name:
        root = Path(name)
        with local_cloud(root / "cloud", "--runtime", "process", "--exit-when-idle", "0") as cloud:
            return asyncio.run(_run(root, cloud))


async def _run(root: Path, cloud: LocalCloud) -> list[Row]:
    sandbox = run_sandbox(cloud)
    _, ca_file = server_context(root / "tls")
    bridge = root / "in.sock"
    with child("serve") as (port, _), child("bridge", str(bridge), str(port)):
        async with nginx(root / "nginx", bridge, ENDPOINT) as own:
            credentials = f"X-aws-proxy-auth: {sandbox.token}\r\nX-aws-proxy-port: {port}\r\n".encode()
            ways = [
                _Way("ours", _by_tls(sandbox.port, sandbox.context()), int(cloud.told()["pid"]), credentials),
                _Way("no proxy", lambda: asyncio.open_unix_connection(bridge)),
            ]
            if own:
                context = ssl.create_default_context(cafile=str(ca_file))
                ways.append(_Way("nginx", _by_tls(own, context), _worker_of(root / "nginx" / "pid")))
            rows = await _compared(ways)
    return [*rows, *await _call_rows(cloud, sandbox)]


def _by_tls(port: int, context: ssl.SSLContext) -> Connected:
    return lambda: asyncio.open_connection("127.0.0.1", port, ssl=context)


def _worker_of(pid_file: Path) -> int:
    master = int(pid_file.read_text())
    return int(Path(f"/proc/{master}/task/{master}/children").read_text().split()[0])


@dataclass(slots=True)
class _Way:
    """To the server, with more headers; `pid` is of the process in between. Keeps what it took, by what it was."""

    name: str
    connected: Connected
    pid: int = 0
    headers: bytes = b""
    took: dict[str, list[float]] = field(default_factory=dict)

    async def measure(self) -> None:
        """One round of all."""
        get, post = self._request("GET", "/"), self._request("POST", "/", _BODY)
        began = time.perf_counter()
        streams = await self.connected()
        await asked(streams, 1, get)
        self._note("a connection and its first small GET", time.perf_counter() - began)
        self._note("small GET p50", statistics.median(await asked(streams, _GETS, get)))
        used_s = _processor_s(self.pid)
        self._note("small POST p50", statistics.median(await asked(streams, _GETS, post)))
        self._note("small POST, processor time in between", (_processor_s(self.pid) - used_s) / _GETS)
        several = [streams, *[await self.connected() for _ in range(_AT_ONCE - 1)]]
        await asyncio.gather(*(asked(one, 1, get) for one in several))
        began = time.perf_counter()
        await asyncio.gather(*(asked(one, _GETS // _AT_ONCE, get) for one in several))
        took_s = time.perf_counter() - began
        self._note(f"small GET, {_AT_ONCE} connections, per request", took_s / (_GETS // _AT_ONCE * _AT_ONCE))
        for _, writer in several:
            writer.close()
        self._note("download, MB/s", await self._download())

    def _note(self, what: str, took: float) -> None:
        self.took.setdefault(what, []).append(took)

    async def _download(self) -> float:
        reader, writer = await self.connected()
        began = time.perf_counter()
        writer.write(self._request("GET", "/big"))
        await reader.readuntil(b"\r\n\r\n")
        left = _BIG_BYTES
        while left:
            left -= len(await reader.read(min(left, 1 << 20)))
        writer.close()
        return _BIG_BYTES / 1e6 / (time.perf_counter() - began)

    def _request(self, method: str, path: str, body: bytes = b"") -> bytes:
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
        return head + self.headers + length + b"\r\n" + body


async def _compared(ways: list[_Way]) -> list[Row]:
    """In turns, so that what else the machine does falls on all."""
    for number in range(_ROUNDS + 1):
        for way in ways:
            await way.measure()
            if not number:
                way.took.clear()
    return [_row(what, ways) for what in ways[0].took]


def _row(what: str, ways: list[_Way]) -> Row:
    shown = (lambda figure: f"{figure:.0f} MB/s") if "MB/s" in what else milliseconds
    ours, *others = ((way.name, statistics.median(way.took[what])) for way in ways)
    against = [f"{shown(one)} {name}, {ours[1] / one:.2f} ×" for name, one in others if one]
    return (what, shown(ours[1]), "; ".join(against))


async def _call_rows(cloud: LocalCloud, sandbox: Endpoint) -> list[Row]:
    rows: list[Row] = []
    for what, path in (("GetMicrovm", f"/2025-09-09/microvms/{sandbox.id}"), ("ListMicrovms", "/2025-09-09/microvms")):
        request = _signed(cloud.told(), path)
        pid = int(cloud.told()["pid"])
        before_s = _processor_s(pid)
        rates = [await _calls_per_s(cloud.told()["endpoint_url"], request) for _ in range(_ROUNDS)]
        each_s = (_processor_s(pid) - before_s) / (_CALLS * _ROUNDS)
        rows.append((f"{what}, {_AT_ONCE} connections", f"{statistics.median(rates):.0f} calls/s", "goal: 500"))
        rows.append((f"{what}, processor time", milliseconds(each_s), f"enough for {1 / each_s:.0f} calls/s"))
    return rows


def _processor_s(pid: int) -> float:
    """What a process has used; without one none."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat") if pid else ()
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _signed(told: Mapping[str, str], path: str) -> bytes:
    signed = AWSRequest(method="GET", url=told["endpoint_url"] + path)
    keys = Credentials(told["access_key_id"], told["secret_access_key"])
    SigV4Auth(keys, "lambda", told["region"]).add_auth(signed)
    lines = [f"GET {path} HTTP/1.1", f"Host: {urlsplit(told['endpoint_url']).netloc}"]
    lines += [f"{name}: {value}" for name, value in signed.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


async def _calls_per_s(endpoint_url: str, request: bytes) -> float:
    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(endpoint_url).port)
        for _ in range(_CALLS // _AT_ONCE):
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 200"):
                raise RuntimeError(head.decode())
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(_AT_ONCE)))
    return _CALLS / (time.perf_counter() - began)
