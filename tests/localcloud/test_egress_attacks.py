"""Ways to get out of a sandbox by its proxy, each tried: the proxy dials nothing that its policy does not name."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from sbxtui.core.hosts import THIS_MACHINE
from sbxtui.localcloud.egress.conversation import Patience
from tests.localcloud.way_out import OTHER, PRIVATE, PUBLIC, WAIT_S, error_of, status_of, way_out

ALLOWED = "allow=example.com:80,example.com:443,inside.example.com:80,inside.example.com:443"
GET = b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n"

# Requests none of which may lead to a dial, with the status they get.
REFUSED: dict[str, tuple[bytes, int]] = {
    "another host": (b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n", 403),
    "another port": (b"GET http://example.com:8080/ HTTP/1.1\r\nHost: example.com:8080\r\n\r\n", 403),
    "connect to another port": (b"CONNECT example.com:22 HTTP/1.1\r\nHost: example.com:22\r\n\r\n", 403),
    "connect to another host": (b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n", 403),
    "a name that leads inside": (b"GET http://inside.example.com/ HTTP/1.1\r\nHost: inside.example.com\r\n\r\n", 403),
    "connect to a name that leads inside": (b"CONNECT inside.example.com:443 HTTP/1.0\r\n\r\n", 403),
    "loopback": (b"GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 403),
    "this machine": (b"GET http://host.sbx.internal/ HTTP/1.1\r\nHost: host.sbx.internal\r\n\r\n", 403),
    "loopback by v6": (b"GET http://[::1]/ HTTP/1.1\r\nHost: [::1]\r\n\r\n", 403),
    "mapped": (b"CONNECT [::ffff:127.0.0.1]:80 HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:80\r\n\r\n", 403),
    "nat64": (b"CONNECT [64:ff9b::7f00:1]:80 HTTP/1.1\r\nHost: [64:ff9b::7f00:1]:80\r\n\r\n", 403),
    "6to4": (b"CONNECT [2002:7f00:1::]:80 HTTP/1.1\r\nHost: [2002:7f00:1::]:80\r\n\r\n", 403),
    "metadata": (b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n", 403),
    "unspecified": (b"GET http://0.0.0.0/ HTTP/1.1\r\nHost: 0.0.0.0\r\n\r\n", 403),
    "decimal": (b"GET http://2130706433/ HTTP/1.1\r\nHost: 2130706433\r\n\r\n", 400),
    "octal": (b"GET http://0177.0.0.1/ HTTP/1.1\r\nHost: 0177.0.0.1\r\n\r\n", 400),
    "hex": (b"GET http://0x7f.0.0.1/ HTTP/1.1\r\nHost: 0x7f.0.0.1\r\n\r\n", 400),
    "short": (b"GET http://127.1/ HTTP/1.1\r\nHost: 127.1\r\n\r\n", 400),
    "zone": (b"GET http://[fe80::1%25eth0]/ HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", 400),
    "user name": (b"GET http://example.com@127.0.0.1/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "user name in front": (b"GET http://127.0.0.1@example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "password": (b"GET http://example.com:80@127.0.0.1/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "user name in connect": (b"CONNECT example.com:443@127.0.0.1:80 HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "backslash": (b"GET http://example.com\\@127.0.0.1/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "fragment": (b"GET http://example.com#@127.0.0.1/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "escaped dot": (b"GET http://example%2ecom/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "host says something else": (b"GET http://example.com/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
    "host has another port": (b"GET http://example.com/ HTTP/1.1\r\nHost: example.com:8080\r\n\r\n", 400),
    "two hosts": (GET + b"Host: 127.0.0.1\r\n\r\n", 400),
    "no host": (b"GET http://example.com/ HTTP/1.1\r\n\r\n", 400),
    "path only": (b"GET /admin HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "https by get": (b"GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "another scheme": (b"GET ftp://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "star": (b"OPTIONS * HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "connect with a path": (b"CONNECT example.com:443/x HTTP/1.1\r\nHost: example.com:443\r\n\r\n", 400),
    "connect without a port": (b"CONNECT example.com HTTP/1.1\r\nHost: example.com\r\n\r\n", 400),
    "connect with a body": (
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nContent-Length: 5\r\n\r\n",
        400,
    ),
    "length and coding": (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400),
    "signed length": (GET + b"Content-Length: +5\r\n\r\nhello", 400),
    "odd coding": (GET + b"Transfer-Encoding: xchunked\r\n\r\n", 400),
    "coding and more": (GET + b"Transfer-Encoding: chunked, identity\r\n\r\n", 400),
    "space before colon": (GET + b"Content-Length : 5\r\n\r\nhello", 400),
    "folded": (GET + b"X: a\r\n b\r\n\r\n", 400),
    "bare line feed": (b"GET http://example.com/ HTTP/1.1\nHost: example.com\r\n\r\n", 400),
    "dropping the length": (GET + b"Connection: content-length\r\nContent-Length: 5\r\n\r\nhello", 400),
    "dropping the host": (GET + b"Connection: close, Host\r\n\r\n", 400),
    "http 2": (b"PRI * HTTP/2.0\r\n\r\n", 505),
    "huge head": (GET + b"X: " + b"a" * 200_000 + b"\r\n\r\n", 431),
    "many fields": (GET + b"X: a\r\n" * 300 + b"\r\n", 431),
    "no http": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
}


@pytest.mark.parametrize("attack", REFUSED)
async def test_an_attack_is_refused_and_dials_nothing(attack: str, tmp_path: Path) -> None:
    request, status = REFUSED[attack]
    async with way_out(tmp_path, ALLOWED) as way:
        answer = await way.ask(request)
    assert status_of(answer) == status, answer
    assert error_of(answer)["message"]
    assert way.dialled == []
    assert way.actions() == ["refused"]


async def test_a_name_that_changes_its_address_after_the_check_gains_nothing(tmp_path: Path) -> None:
    async with way_out(tmp_path, ALLOWED) as way:
        way.names["example.com"] = [[PUBLIC], [PRIVATE]]
        assert status_of(await way.ask(GET + b"\r\n")) == 200
        assert (way.lookups, way.dialled) == (["example.com"], [(PUBLIC, 80)])
        assert status_of(await way.ask(GET + b"\r\n")) == 403
        assert way.dialled == [(PUBLIC, 80)]


async def test_of_mixed_addresses_only_public_ones_are_dialled(tmp_path: Path) -> None:
    async with way_out(tmp_path, ALLOWED) as way:
        way.names["example.com"] = [[PRIVATE, "::1", "169.254.169.254", OTHER]]
        assert status_of(await way.ask(GET + b"\r\n")) == 200
    assert way.dialled == [(OTHER, 80)]


async def test_a_redirect_inside_is_a_request_of_its_own_and_refused(tmp_path: Path) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with way_out(tmp_path, "internet", redirect) as way:
        first = await way.ask(GET + b"\r\n")
        assert (status_of(first), b"Location: http://127.0.0.1/" in first) == (302, True)
        second = await way.ask(b"GET http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert status_of(second) == 403
    assert way.dialled == [(PUBLIC, 80)]


async def test_a_second_request_on_a_connection_is_never_read(tmp_path: Path) -> None:
    smuggled = b"GET http://example.com/second HTTP/1.1\r\nHost: example.com\r\n\r\n"
    body = b"0\r\n\r\n" + smuggled
    async with way_out(tmp_path, ALLOWED) as way:
        answer = await way.ask(GET + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"second" not in answer
    assert way.dialled == [(PUBLIC, 80)]


async def test_the_destination_gets_the_checked_host_and_nothing_of_the_proxys(tmp_path: Path) -> None:
    fields = b"Proxy-Authorization: Basic am9iLTE6eA==\r\nProxy-Connection: keep-alive\r\nConnection: x-private\r\n"
    request = b"GET http://EXAMPLE.com.:80?q HTTP/1.1\r\nHost: Example.com\r\n" + fields
    async with way_out(tmp_path, ALLOWED) as way:
        answer = await way.ask(request + b"X-Private: 1\r\nX-Kept: 2\r\nUpgrade: websocket\r\n\r\n")
    seen = answer.partition(b"\r\n\r\n")[2]
    assert seen == b"GET /?q HTTP/1.1\r\nHost: example.com\r\nX-Kept: 2\r\nConnection: close\r\n\r\n"
    [entry, *_] = way.log.after(0)
    assert (entry["job"], entry["host"], entry["address"]) == ("job-1", "example.com", PUBLIC)


async def test_this_machine_is_reached_by_a_rule_that_names_it_and_at_loopback_only(tmp_path: Path) -> None:
    request = f"GET http://{THIS_MACHINE}:8000/ HTTP/1.1\r\nHost: {THIS_MACHINE}:8000\r\n\r\n".encode()
    async with way_out(tmp_path, f"allow={THIS_MACHINE}:8000") as way:
        assert status_of(await way.ask(request)) == 200
    assert (way.lookups, way.dialled) == ([], [("127.0.0.1", 8000)])


async def test_an_answer_that_is_two_answers_is_not_passed_on(tmp_path: Path) -> None:
    async def split(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 90\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    async with way_out(tmp_path, ALLOWED, split) as way:
        assert status_of(await way.ask(GET + b"\r\n")) == 502
    assert way.actions() == ["allowed", "failed"]


async def test_a_client_that_dawdles_is_answered_and_dropped(tmp_path: Path) -> None:
    async with way_out(tmp_path, ALLOWED, patience=Patience(head_s=0.2)) as way, asyncio.timeout(WAIT_S):
        reader, writer = await way.open()
        writer.write(b"GET http://example.com/ HT")
        assert status_of(await reader.read()) == 408
        writer.close()
    assert way.dialled == []


async def test_a_destination_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with way_out(tmp_path, ALLOWED, silent, patience=Patience(answer_s=0.2, tunnel_s=0.2)) as way:
        answer = await way.ask(GET + b"\r\n")
        assert (status_of(answer), error_of(answer)["retryable"]) == (504, True)
        head, (reader, writer) = await way.tunnel("example.com:443")
        assert status_of(head) == 200
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_a_name_that_is_never_resolved_is_given_up(tmp_path: Path) -> None:
    async with way_out(tmp_path, "internet", patience=Patience(lookup_s=0.2)) as way:
        way.names["example.com"] = []
        answer = await way.ask(GET + b"\r\n")
        assert (status_of(answer), error_of(answer)["code"]) == (504, "timed_out")
        answer = await way.ask(b"GET http://nowhere.example.com/ HTTP/1.1\r\nHost: nowhere.example.com\r\n\r\n")
        assert (status_of(answer), error_of(answer)["code"]) == (502, "unavailable")


async def test_a_tunnel_passes_bytes_both_ways_and_each_half_ends_by_itself(tmp_path: Path) -> None:
    content = bytes(range(256)) * 8_000

    async def echo_at_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        writer.close()

    async with way_out(tmp_path, ALLOWED, echo_at_end) as way:
        head, (reader, writer) = await way.tunnel("example.com:443")
        assert status_of(head) == 200
        async with asyncio.timeout(WAIT_S):
            writer.write(content)
            writer.write_eof()
            assert await reader.read() == content
        writer.close()
        async with asyncio.timeout(WAIT_S):
            entries = await way.log.wait(1, timeout_s=WAIT_S)
    [ended] = [entry for entry in entries if entry["action"] == "ended"]
    assert (ended["sent_bytes"], ended["received_bytes"]) == (len(content), len(content))


async def test_a_refusal_is_a_document_a_program_can_read_and_says_how_to_ask(tmp_path: Path) -> None:
    async with way_out(tmp_path, "none") as way:
        answer = await way.ask(b"CONNECT example.com:443 HTTP/1.0\r\n\r\n")
        error = error_of(answer)
        assert (error["code"], error["retryable"]) == ("policy_denied", False)
        assert (error["details"]["host"], error["details"]["port"]) == ("example.com", 443)
        assert "sbx network microvm-1 --allow example.com:443" in error["hint"]
        # Programs that show only the phrase of a refused CONNECT show why, too.
        assert b"403 sbx: example.com:443 is not allowed" in answer
        told = await way.ask(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n")
    assert b'"network": "none"' in told


async def test_the_log_is_bounded_and_goes_on_over_a_restart(tmp_path: Path) -> None:
    async with way_out(tmp_path, "none") as way:
        for _ in range(130):
            way.log.add("refused", host="example.com", reason="x" * 20_000)
        entries = way.log.after(0)
        assert 50 <= len(entries) <= 100
    sizes = [file.stat().st_size for file in tmp_path.glob("network.jsonl*")]
    assert sum(sizes) < 3 << 20
    async with way_out(tmp_path, "none") as again:
        assert again.log.last_seq == entries[-1]["seq"]
