"""`WS /v2/jobs/{id}/attach` of a real guest: one connection for all of a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sbxguest import wire
from sbxguest.wire import FrameType
from tests.support.attach_client import Attached, attached
from tests.support.guest_process import GuestProcess, running_guest
from tests.support.relay import running_relay

LIMIT_S = 60
TTY = {"cols": 80, "rows": 24}


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http, asyncio.timeout(LIMIT_S):
        yield http


async def _start(http: httpx.AsyncClient, job_id: str, script: str, **more: Any) -> None:
    reply = await http.post("/v2/jobs", json={"id": job_id, "argv": ["sh", "-c", script], **more})
    assert reply.status_code == 201, reply.text


async def test_one_connection_sees_types_resizes_and_hears_the_end(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    script = "stty -echo; trap 'stty size' WINCH; echo up; read a; echo got $a; read b; cat; exit 7"
    await _start(http, "a", script, tty=TTY)
    async with attached(guest.url, "a", writer="me") as me:
        await me.until_output(b"up")
        assert (me.job["state"], me.job["accepted"], me.job["tty"]["cols"]) == ("running", 0, 80)
        await me.send(FrameType.STDIN, 0, b"one\n")
        await me.until_output(b"got one")
        await me.ask(FrameType.RESIZE, cols=90, rows=30)
        await me.send(FrameType.STDIN, 4, b"two\n")
        await me.until_output(b"30 90")
        await me.send(FrameType.EOF, 8)
        assert await me.until_closed() == 1000
    assert me.exit is not None and me.exit["code"] == 7
    assert me.accepted == 8


async def test_pipes_come_apart_and_take_input_with_an_end(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await _start(http, "p", "cat; echo err >&2", stdin="pipe")
    data = bytes(range(256)) * 1024
    async with attached(guest.url, "p") as me:
        for at in range(0, len(data), 32_768):
            await me.send(FrameType.STDIN, at, data[at : at + 32_768])
            await me.until_accepted(at + 1)
        await me.send(FrameType.EOF, len(data))
        await me.until_closed()
    output = {channel: b"" for channel in (wire.Channel.OUT, wire.Channel.ERR)}
    for frame in me.of(FrameType.DATA):
        output[wire.Channel(frame.channel)] += frame.payload
    assert output == {wire.Channel.OUT: data, wire.Channel.ERR: b"err\n"}


async def test_signals_reach_a_job_whose_input_is_stuck(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await _start(http, "s", "trap 'echo got; exit 3' USR1; echo up; while :; do sleep 0.05; done", stdin="pipe")
    async with attached(guest.url, "s") as me:
        await me.until_output(b"up")
        for at in range(0, 200_000, 50_000):
            await me.send(FrameType.STDIN, at, bytes(50_000))
        await me.ask(FrameType.SIGNAL, sig="USR1", to="leader")
        await me.until_closed()
    assert (me.output, me.exit and me.exit["code"]) == (b"up\ngot\n", 3)


async def test_more_input_than_the_window_is_refused_and_can_be_sent_again(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _start(http, "w", "while ! [ -e go ]; do sleep 0.02; done; wc -c", stdin="pipe")
    piece, pieces = 64 * 1024, 8
    async with attached(guest.url, "w") as me:
        for n in range(pieces):
            await me.send(FrameType.STDIN, n * piece, bytes(piece))
        await me.until(lambda: bool(me.of(FrameType.ERROR)))
        assert wire.payload_json(me.of(FrameType.ERROR)[0])["code"] == "too_much_input"
        (guest.workdir / "go").touch()
        while (done := me.accepted) < pieces * piece:
            await me.send(FrameType.STDIN, done, bytes(min(piece, pieces * piece - done)))
            await me.until_accepted(done + 1)
        await me.send(FrameType.EOF, pieces * piece)
        await me.until_closed()
    assert int(me.output) == pieces * piece


@pytest.mark.long
async def test_ends_without_number_are_refused_while_the_first_waits(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _start(http, "n", "echo up; while :; do sleep 0.05; done", stdin="pipe")
    async with attached(guest.url, "n") as me:
        await me.until_output(b"up")
        for at in (0, 65_536, 131_072):
            await me.send(FrameType.STDIN, at, bytes(65_536))
        for _ in range(9000):
            await me.send(FrameType.EOF, 1 << 20)
        await me.until(lambda: bool(me.of(FrameType.ERROR)))
        assert wire.payload_json(me.of(FrameType.ERROR)[0])["code"] == "too_much_input"
    await http.delete("/v2/jobs/n")


async def test_two_watchers_and_two_who_type_share_one_terminal(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await _start(http, "t", "stty -echo; echo up; read a; echo 1 $a; read b; echo 2 $b; read c; echo 3 $c", tty=TTY)
    async with (
        attached(guest.url, "t", writer="ann") as ann,
        attached(guest.url, "t", writer="bob") as bob,
        attached(guest.url, "t") as eve,
    ):
        everyone: tuple[Attached, ...] = (ann, bob, eve)
        await asyncio.gather(*(one.until_output(b"up") for one in everyone))
        await ann.send(FrameType.STDIN, 0, b"ann\n")
        await asyncio.gather(*(one.until_output(b"1 ann") for one in everyone))
        await bob.send(FrameType.STDIN, 0, b"bob\n")
        await asyncio.gather(*(one.until_output(b"2 bob") for one in everyone))
        await ann.send(FrameType.STDIN, 0, b"ann\nagain\n")
        await asyncio.gather(*(one.until_closed() for one in everyone))
    assert {one.output for one in everyone} == {b"up\r\n1 ann\r\n2 bob\r\n3 again\r\n"}


async def test_who_reads_slowly_gets_a_gap_and_slows_nobody(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    script = "while ! [ -e go ]; do sleep 0.02; done; head -c 40000000 /dev/zero; echo end"
    await _start(http, "g", script, ring_bytes=64 * 1024)
    async with attached(guest.url, "g") as slow:
        (guest.workdir / "go").touch()
        reply = await http.get("/v2/jobs/g", params={"wait_s": 25})
        assert reply.json()["exit"]["totals"]["all"] == 40_000_004
        await slow.until_closed()
    gaps = slow.of(FrameType.GAP)
    lost = sum(gap.end_cursor - gap.cursor for gap in gaps)
    assert gaps and slow.output.endswith(b"end\n") and len(slow.output) + lost == 40_000_004


async def test_a_held_job_goes_on_as_its_reader_says_how_far_it_is(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _start(http, "h", "seq 1 100000", log="hold", ring_bytes=64 * 1024)
    async with attached(guest.url, "h", hold=1) as me:
        while not me.frames or me.exit is None:
            await me.until_more()
            with contextlib.suppress(ConnectionClosed):
                await me.send(FrameType.TAKEN, len(me.output))
    assert me.output == b"".join(b"%d\n" % n for n in range(1, 100_001))


async def test_twenty_five_cuts_lose_and_double_nothing_at_a_terminal(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _start(http, "c", "stty raw -echo; printf up; cat", tty=TTY)
    sent = b"".join(b"%06d" % n for n in range(200_000))
    received, cuts = b"", 0
    async with running_relay(guest.port) as relay:
        relay.cut_after_bytes = 50_000
        while len(received) < len(sent) + 2:
            async with attached(relay.url, "c", writer="me", cursor=len(received)) as me:
                with contextlib.suppress(ConnectionClosed):
                    await me.until_more()
                    await _feed(me, sent, int(me.job["accepted"]))
                    while len(received) + len(me.output) < len(sent) + 2:
                        await me.until_more()
                received += me.output
            cuts += 1
    assert cuts >= 20
    assert received == b"up" + sent


async def _feed(me: Attached, data: bytes, position: int) -> None:
    """Type from `position` on, a quarter of the window ahead of what is acknowledged."""
    for at in range(position, len(data), 8_000):
        await me.send(FrameType.STDIN, at, data[at : at + 8_000])
        await me.until_accepted(at - wire.INPUT_WINDOW_BYTES // 4)


async def test_what_makes_no_sense_is_said_and_the_connection_goes_on(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _start(http, "n", "cat", stdin="pipe")
    async with attached(guest.url, "n") as me:
        await me.ask(FrameType.SIGNAL, sig="NOPE")
        await me.ask(FrameType.RESIZE, cols=80, rows=24)
        await me.send(FrameType.SIGNAL, 0, b"{")
        await me.send(FrameType.STDIN, 5, b"x")
        await me.connection.send("text")
        await me.send(FrameType.GAP, 0, b"ignored")
        await me.until(lambda: len(me.of(FrameType.ERROR)) == 4)
        codes = [wire.payload_json(frame)["code"] for frame in me.of(FrameType.ERROR)]
        assert codes == ["bad_signal", "no_tty", "bad_json", "bad_offset"]
        await me.send(FrameType.STDIN, 0, b"fine")
        await me.send(FrameType.EOF, 4)
        assert await me.until_closed() == 1000
    assert me.output == b"fine"
    await _start(http, "m", "sleep 1000")
    async with attached(guest.url, "m") as me:
        await me.connection.send(b"\x10garbled")
        assert await me.until_closed() == 1007


async def test_deleting_a_job_closes_its_connections_without_an_exit(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _start(http, "d", "echo up; exec sleep 1000", tty=TTY)
    async with attached(guest.url, "d") as me:
        await me.until_output(b"up")
        await http.delete("/v2/jobs/d")
        assert await me.until_closed() in (1000, 4404)
    assert me.output.startswith(b"up\r\n")


REFUSALS: tuple[tuple[str, dict[str, Any], dict[str, str], int, str], ...] = (
    ("nothing", {}, {}, 404, "not_found"),
    ("j", {"cursor": 100}, {}, 416, "bad_cursor"),
    ("j", {"cursor": "x"}, {}, 400, "bad_query"),
    ("j", {"writer": "w" * 65}, {}, 400, "bad_query"),
    ("j", {"boot": "0" * 32}, {}, 410, "boot_changed"),
    ("j", {}, {wire.BOOT_HEADER: "0" * 32}, 410, "boot_changed"),
)


async def test_a_wrong_request_is_answered_with_its_error_instead_of_an_upgrade(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _start(http, "j", "true")
    for job_id, query, headers, status, code in REFUSALS:
        with pytest.raises(InvalidStatus) as refused:
            async with attached(guest.url, job_id, headers=headers, **query):
                pass
        answer = refused.value.response
        assert (answer.status_code, json.loads(answer.body)["error"]["code"]) == (status, code)
        assert answer.headers[wire.ERROR_HEADER] == code
    assert (await http.get("/v2/jobs/j/attach")).status_code == 426


async def test_nobody_attaches_before_run_when_hooks_are_enabled(tmp_path: Path) -> None:
    async with running_guest(tmp_path, has_hooks=True) as guest:
        with pytest.raises(InvalidStatus, match="503"):
            async with attached(guest.url, "j"):
                pass


async def test_who_attaches_again_after_the_end_sees_all_of_it(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await _start(http, "e", "echo all; exit 2", tty=TTY)
    for cursor, expected in ((0, b"all\r\n"), (2, b"l\r\n"), (5, b"")):
        await http.get("/v2/jobs/e", params={"wait_s": 20})
        async with attached(guest.url, "e", cursor=cursor) as me:
            assert await me.until_closed() == 1000
        assert (me.output, me.exit and me.exit["code"]) == (expected, 2)
