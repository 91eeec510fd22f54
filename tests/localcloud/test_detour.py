"""A machine that itself needs a proxy: what a sandbox may reach goes through it, and no check is lost by that."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sbxtui.localcloud.egress.detour import Detour
from tests.localcloud.way_out import PUBLIC, WayOut, error_of, status_of, way_out

GET = b"GET http://example.com/x HTTP/1.1\r\nHost: example.com\r\n\r\n"
CREDENTIALS = b"Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss")


@dataclass(slots=True)
class Proxy:
    """A proxy that answers what it is asked with a status, keeps it, and echoes what comes through a tunnel."""

    got: list[bytes] = field(default_factory=list)
    status: int = 200

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.got.append(head)
        if head.startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 %d Told\r\n\r\n" % self.status)
            writer.write(await reader.read(1_000) if self.status == 200 else b"")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nfetched")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def behind(folder: Path, network: str, **variables: str) -> AsyncIterator[tuple[WayOut, Proxy]]:
    proxy = Proxy()
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    url = f"http://me:p%40ss@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    detour = Detour({"http": url, "https": url, **variables})
    async with way_out(folder, network, detour=detour) as way:
        yield way, proxy
    server.close()


async def tunnelled(way: WayOut, place: str) -> bytes:
    head, (reader, writer) = await way.tunnel(place)
    writer.write(b"ping")
    writer.write_eof()
    answer = head + await reader.read()
    writer.close()
    return answer


async def test_what_a_rule_names_is_asked_of_the_proxy_by_its_name(tmp_path: Path) -> None:
    async with behind(tmp_path, "allow=example.com:443,example.com:80,unknown.example:443") as (way, proxy):
        for host in ("example.com", "unknown.example"):
            assert (await tunnelled(way, f"{host}:443")).endswith(b"\r\n\r\nping")
        assert (await way.ask(GET)).endswith(b"fetched")
        assert way.dialled == []
    starts = [got.partition(b"\r\n")[0] for got in proxy.got]
    assert starts[0] == b"CONNECT example.com:443 HTTP/1.1"
    assert starts[1:] == [b"CONNECT unknown.example:443 HTTP/1.1", b"GET http://example.com:80/x HTTP/1.1"]
    assert all(CREDENTIALS in got for got in proxy.got)
    assert "p@ss" not in (tmp_path / "network.jsonl").read_text()


async def test_under_internet_the_proxy_is_told_the_address_that_was_checked(tmp_path: Path) -> None:
    async with behind(tmp_path, "internet") as (way, proxy):
        await tunnelled(way, "example.com:443")
        await way.ask(GET)
        refused = await tunnelled(way, "unknown.example:443")
        assert (status_of(refused), "a rule names" in error_of(refused.removesuffix(b"ping"))["message"]) == (502, True)
    assert [got.split(b" ")[1] for got in proxy.got] == [f"{PUBLIC}:443".encode(), f"{PUBLIC}:80".encode()]


async def test_a_name_that_leads_inside_from_here_is_not_left_to_the_proxy(tmp_path: Path) -> None:
    async with behind(tmp_path, "allow=inside.example.com:443") as (way, proxy):
        assert status_of(await tunnelled(way, "inside.example.com:443")) == 403
        assert status_of(await tunnelled(way, "10.0.0.5:443")) == 403
        assert (proxy.got, way.dialled) == ([], [])


async def test_excepted_hosts_are_dialled_and_a_proxy_that_refuses_is_told(tmp_path: Path) -> None:
    async with behind(tmp_path, "allow=example.com:80", no="example.com") as (way, proxy):
        assert status_of(await way.ask(GET)) == 200
        assert (proxy.got, way.dialled) == ([], [(PUBLIC, 80)])
    async with behind(tmp_path, "allow=example.com:443") as (way, proxy):
        proxy.status = 407
        answer = await tunnelled(way, "example.com:443")
        assert (status_of(answer), "refuses it with 407" in error_of(answer)["message"]) == (502, True)
    async with behind(tmp_path, "allow=example.com:443", https="socks5://127.0.0.1:1") as (way, _):
        answer = await tunnelled(way, "example.com:443")
        assert "only http:// is spoken" in error_of(answer)["message"]
