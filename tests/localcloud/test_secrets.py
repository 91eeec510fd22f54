"""Secrets on their way out: put in towards their hosts and nowhere else, whatever a program in the sandbox tries."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sbxtui.core.secrets import parse_places
from sbxtui.localcloud.egress.secrets import Secret, SecretBook
from sbxtui.localcloud.egress.vault import Vault
from tests.localcloud.way_out import WAIT_S, WayOut, error_of, status_of, way_out
from tests.support.tls_server import TestAuthority, make_test_authority

HOST, OTHER_HOST = "api.example.com", "other.example.com"
VALUE = "s3cr3t/+value= 7f"
ALLOWED = f"allow={HOST}:443,{HOST}:80,{OTHER_HOST}:443,{OTHER_HOST}:80"


@dataclass(slots=True)
class Server:
    """The destination: keeps what it got, and answers with what `reply` makes of a request."""

    got: list[bytes] = field(default_factory=list)
    pieces: int = 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: answers each request with its own head, in pieces."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.got.append(head)
                if b"Upgrade: websocket" in head:
                    writer.write(
                        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
                    )
                    writer.write(await reader.read(100))
                    break
                writer.write(b"HTTP/1.1 200 OK\r\nX-Echo: %b\r\nContent-Length: %d\r\n\r\n" % (_token(head), len(head)))
                size = max(1, len(head) // self.pieces)
                for at in range(0, len(head), size):
                    writer.write(head[at : at + size])
                    await writer.drain()
                if b"X-End" in head:
                    break
        writer.close()


def _token(head: bytes) -> bytes:
    return head.partition(b"Authorization: ")[2].partition(b"\r\n")[0]


@dataclass(frozen=True, slots=True)
class Scene:
    """A way out with one secret."""

    way: WayOut
    server: Server
    secret: Secret
    authority: TestAuthority

    @property
    def stand_in(self) -> bytes:
        """What is inside in its place."""
        return self.secret.placeholder.encode()

    async def ask(self, request: bytes, *, host: str = HOST, named: str = "", alpn: tuple[str, ...] = ()) -> bytes:
        """A request by TLS through the proxy, as a program asks that trusts what it is told to."""
        head, streams = await self.way.tunnel(f"{host}:443")
        assert status_of(head) == 200, head
        reader, writer = await self.tls(streams, named or host, alpn)
        async with asyncio.timeout(WAIT_S):
            writer.write(request)
            answer = await reader.read()
            writer.close()
        return answer

    async def tls(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], named: str, alpn: tuple[str, ...] = ()
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A handshake in a tunnel."""
        trusting = self.authority.client_context()
        trusting.load_verify_locations(cadata=self.way.secrets.authority.certificate_pem)
        if alpn:
            trusting.set_alpn_protocols(list(alpn))
        await streams[1].start_tls(trusting, server_hostname=named)
        return streams

    def request(self, *fields: bytes, path: bytes = b"/", host: bytes = HOST.encode()) -> bytes:
        """A GET with the placeholder as a bearer's token."""
        lines = (b"GET %b HTTP/1.1" % path, b"Host: " + host, b"Authorization: Bearer " + self.stand_in, *fields)
        return b"\r\n".join((*lines, b"", b""))


@asynccontextmanager
async def scene(folder: Path, *, places: tuple[str, ...] = (HOST,), cert_host: str = HOST) -> AsyncIterator[Scene]:
    authority, server, book = make_test_authority(folder), Server(), SecretBook()
    secret = book.made("API_TOKEN", VALUE, parse_places(places))
    book.replace([secret])
    trust = authority.client_context()
    tls = authority.server_context(cert_host)
    async with way_out(folder, ALLOWED, server.serve, tls=tls, secrets=book, trust=lambda: trust) as way:
        way.names |= {HOST: [["93.184.216.34"]], OTHER_HOST: [["93.184.216.35"]]}
        yield Scene(way, server, secret, authority)


async def test_a_secret_is_put_into_headers_target_and_credentials_and_its_echo_is_covered(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as one:
        basic = base64.b64encode(b"me:" + one.stand_in)
        fields = (b"X-Basic: Basic " + basic, b"Cookie: a=" + one.stand_in, b"Accept-Encoding: gzip")
        answer = await one.ask(one.request(*fields, path=b"/x?key=" + one.stand_in))
        [got] = one.server.got
    assert got.startswith(b"GET /x?key=s3cr3t%2F%2Bvalue%3D%207f HTTP/1.1\r\n")
    assert b"Authorization: Bearer s3cr3t/+value= 7f\r\n" in got
    assert b"X-Basic: Basic " + base64.b64encode(b"me:" + VALUE.encode()) in got
    assert b"Cookie: a=s3cr3t/+value= 7f\r\n" in got
    assert b"Accept-Encoding: identity\r\n" in got
    assert one.stand_in not in got
    assert status_of(answer) == 200
    for told in (VALUE.encode(), b"s3cr3t%2F", base64.b64encode(b"me:" + VALUE.encode())):
        assert told not in answer
    assert b"X-Echo: Bearer *****************\r\n" in answer
    told_of = [entry for entry in one.way.log.after(0) if entry["action"] == "secret"]
    assert [(entry["secrets"], entry["host"], entry["method"]) for entry in told_of] == [("API_TOKEN", HOST, "GET")]
    assert VALUE not in (tmp_path / "network.jsonl").read_text()


@pytest.mark.parametrize("pieces", [1, 7, 400])
async def test_an_echo_in_pieces_is_covered_too(pieces: int, tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.server.pieces = pieces
        answer = await one.ask(one.request())
    assert b"Authorization: Bearer *****************\r\n" in answer
    assert len(answer.partition(b"\r\n\r\n")[2]) == len(one.server.got[0])


async def test_another_host_gets_the_placeholder_and_end_to_end_tls(tmp_path: Path) -> None:
    async with scene(tmp_path, cert_host=OTHER_HOST) as one:
        answer = await one.ask(one.request(b"X-End: 1", host=OTHER_HOST.encode()), host=OTHER_HOST)
        assert status_of(answer) == 200
        assert one.stand_in in one.server.got[0]
        assert VALUE.encode() not in one.server.got[0]
    assert one.way.actions()[0] == "allowed"
    assert "secret" not in one.way.actions()


REFUSED: dict[str, tuple[bytes, int]] = {
    "another host in the field": (b"GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n", 421),
    "another port in the field": (b"GET / HTTP/1.1\r\nHost: api.example.com:80\r\n\r\n", 421),
    "an address in the field": (b"GET / HTTP/1.1\r\nHost: 93.184.216.35\r\n\r\n", 421),
    "two fields": (b"GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: other.example.com\r\n\r\n", 400),
    "a whole address": (b"GET https://other.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400),
    "a tunnel in the tunnel": (b"CONNECT other.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400),
    "length and coding": (
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "two lengths": (
        b"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        400,
    ),
    "a folded field": (b"GET / HTTP/1.1\r\nHost: api.example.com\r\nX: a\r\n b\r\n\r\n", 400),
    "a bare line feed": (b"GET / HTTP/1.1\nHost: api.example.com\r\n\r\n", 400),
    "dropping the host": (b"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: host\r\n\r\n", 400),
    "http 2 by knowing": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
}


@pytest.mark.parametrize("attack", REFUSED)
async def test_a_request_that_could_be_read_as_one_to_another_host_is_refused(attack: str, tmp_path: Path) -> None:
    request, status = REFUSED[attack]
    async with scene(tmp_path) as one:
        answer = await one.ask(request.replace(b"\r\n\r\n", b"\r\nX-Token: %b\r\n\r\n" % one.stand_in, 1))
        assert (status_of(answer), one.server.got) == (status, [])
        assert error_of(answer)["message"]


async def test_a_hello_that_names_another_host_ends_the_connection(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await one.ask(one.request(host=OTHER_HOST.encode()), named=OTHER_HOST)
        assert one.server.got == []


async def test_only_http_1_is_offered_to_programs_that_would_speak_2(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        _, streams = await one.way.tunnel(f"{HOST}:443")
        _, writer = await one.tls(streams, HOST, ("h2", "http/1.1"))
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()


async def test_what_follows_the_one_request_is_never_read(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        second = one.request(path=b"/second")
        answer = await one.ask(one.request(path=b"/first") + second)
        assert answer.count(b"HTTP/1.1 200") == 1
        body = b"4\r\nabcd\r\n0\r\n\r\n"
        chunked = one.request(b"Transfer-Encoding: chunked", path=b"/third").replace(b"GET", b"POST", 1)
        await one.ask(chunked + body + second)
        assert [got.split(b" ")[1] for got in one.server.got if got[:1] in b"GP"] == [b"/first", b"/third"]


async def test_a_body_is_passed_on_as_it_is(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        body = b"token=" + one.stand_in
        request = one.request(b"Content-Length: %d" % (len(body) + 4), path=b"/form").replace(b"GET", b"POST", 1)
        # The server of the test takes the body for a second head.
        await one.ask(request + body + b"\r\n\r\n")
        assert one.server.got[1] == body + b"\r\n\r\n"


async def test_a_host_without_the_right_certificate_gets_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, cert_host=OTHER_HOST) as one:
        head, (reader, writer) = await one.way.tunnel(f"{HOST}:443")
        assert status_of(head) == 502
        answer = head + await reader.read()
        writer.close()
        assert "certificate" in error_of(answer)["message"]
        assert one.server.got == []
    assert one.way.actions() == ["allowed", "failed"]


async def test_without_tls_a_secret_goes_only_where_that_was_said(tmp_path: Path) -> None:
    plain = f"GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\nX-Token: ".encode()
    async with scene(tmp_path) as one:
        # The certificate's server speaks TLS at every port: that nothing was put in is seen in the log.
        await one.way.ask(plain + one.stand_in + b"\r\n\r\n")
        assert "secret" not in one.way.actions()


async def test_a_secret_of_plain_http_is_put_in_there(tmp_path: Path) -> None:
    server, book = Server(), SecretBook()
    secret = book.made("API_TOKEN", VALUE, parse_places([f"http://{HOST}"]))
    book.replace([secret])
    async with way_out(tmp_path, ALLOWED, server.serve, secrets=book) as way:
        way.names |= {HOST: [["93.184.216.34"]], OTHER_HOST: [["93.184.216.35"]]}
        for host in (HOST, OTHER_HOST):
            request = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nAuthorization: {secret.placeholder}\r\n\r\n"
            answer = await way.ask(request.encode())
            assert VALUE.encode() not in answer
    first, second = server.got
    assert VALUE.encode() in first
    assert secret.placeholder.encode() in second


async def test_a_secret_that_is_taken_back_or_changed_holds_from_the_next_request_on(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        book = one.way.secrets
        book.replace([book.made("API_TOKEN", "another", one.secret.places)])
        await one.ask(one.request())
        assert b"Bearer another\r\n" in one.server.got[0]
        # Before its hello it was opened; what is taken back meanwhile goes nowhere.
        _, streams = await one.way.tunnel(f"{HOST}:443")
        reader, writer = await one.tls(streams, HOST)
        book.replace([])
        writer.write(one.request())
        async with asyncio.timeout(WAIT_S):
            await reader.read()
        writer.close()
        assert one.stand_in in one.server.got[1]


async def test_a_websocket_is_opened_with_its_secret(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        upgrade = one.request(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: eA==")
        _, streams = await one.way.tunnel(f"{HOST}:443")
        reader, writer = await one.tls(streams, HOST)
        async with asyncio.timeout(WAIT_S):
            writer.write(upgrade)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            writer.write(b"hello")
            assert await reader.read() == b"hello"
        writer.close()
        assert VALUE.encode() in one.server.got[0]


async def test_the_vault_holds_nothing_in_clear_and_opens_with_its_own_key_only(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "secrets")
    content = {"secrets": {"API_TOKEN": {"value": VALUE, "places": [HOST]}}}
    await vault.save("microvm-1", content)
    assert vault.load("microvm-1") == content
    written = (tmp_path / "secrets" / "microvm-1").read_bytes()
    assert VALUE.encode() not in bytes.fromhex(written.decode())
    (tmp_path / "secrets" / "microvm-2").write_bytes(written)
    assert vault.load("microvm-2") == {}
    for damage in (b"", b"zz", written[:40]):
        (tmp_path / "secrets" / "microvm-1").write_bytes(damage)
        assert vault.load("microvm-1") == {}
    assert VALUE not in json.dumps([repr(SecretBook().made("K", VALUE, parse_places([HOST])))])
    vault.forget("microvm-1")
    assert not (tmp_path / "secrets" / "microvm-1").exists()
