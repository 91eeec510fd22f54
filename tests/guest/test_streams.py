"""The host's side when the way to the guest misbehaves: cuts, refused tokens, proxies that answer in its place."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from sbxguest import wire
from sbxtui.core.errors import AccessDenied, ConnectionLost, GuestUnreachable, SandboxEnded, TimedOut, UsageError
from sbxtui.core.jobs import JobOutput, JobState
from sbxtui.guest import jobs, streams
from sbxtui.guest.client import GuestClient
from sbxtui.guest.http1 import Patience
from sbxtui.guest.jobs import JobRequest
from tests.support.guest_process import GuestProcess
from tests.support.relay import Relay, running_relay

LIMIT_S = 60


class Tokens:
    """Hands out `t1`, then after each refusal the next."""

    def __init__(self) -> None:
        self.count = 1

    async def token(self, *, refresh: bool = False) -> str:
        self.count += refresh
        return f"t{self.count}"


@pytest.fixture
async def relay(guest: GuestProcess) -> AsyncIterator[Relay]:
    async with running_relay(guest.port) as relay, asyncio.timeout(LIMIT_S):
        yield relay


@pytest.fixture
async def client(relay: Relay) -> AsyncIterator[GuestClient]:
    async with GuestClient(relay.url, Tokens(), port=8080) as client:
        yield client


@pytest.mark.long
async def test_twenty_five_cuts_lose_and_double_no_byte(relay: Relay, client: GuestClient) -> None:
    await client.hello()
    relay.cut_after_bytes = 400_000
    result = await client.exec(["sh", "-c", "seq 1 1600000; echo end >&2; exit 6"])
    expected = b"".join(b"%d\n" % n for n in range(1, 1_600_001))
    assert relay.cuts >= 25
    assert hashlib.sha256(result.stdout).digest() == hashlib.sha256(expected).digest()
    assert (result.exit_code, result.stderr, result.truncated) == (6, b"end\n", False)


async def test_a_line_that_falls_silent_without_breaking_is_given_up_and_taken_up_anew(
    relay: Relay, client: GuestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The guest says something every 15 s, however silent the command; these are the 40 s after which none of it came.
    monkeypatch.setattr(streams, "_PATIENCE", Patience(answer_s=1.0))
    await client.hello()
    relay.stall_after_bytes = 20_000
    result = await client.exec(["sh", "-c", "seq 1 20000; exit 6"])
    assert relay.stall_after_bytes == 0
    assert (result.exit_code, result.stdout) == (6, b"".join(b"%d\n" % n for n in range(1, 20_001)))


async def test_input_over_a_line_that_is_cut_arrives_once(relay: Relay, client: GuestClient) -> None:
    await client.hello()
    relay.cut_after_bytes = 300_000
    data = bytes(range(256)) * 8000
    result = await client.exec(["cat"], stdin=data)
    assert relay.cuts >= 5
    assert result.stdout == data


async def test_a_refused_token_is_renewed_once_and_then_an_error(relay: Relay, client: GuestClient) -> None:
    relay.tokens = {"t2"}
    assert (await client.exec(["echo", "hi"])).stdout == b"hi\n"
    assert relay.seen_ports == {"8080"}
    relay.tokens = set()
    async with GuestClient(relay.url, Tokens()) as other:
        with pytest.raises(AccessDenied, match="refused our token: Request missing authentication"):
            await other.hello()


async def test_what_proxies_say_while_a_sandbox_starts_is_waited_out(relay: Relay, client: GuestClient) -> None:
    relay.answers = [502, 503, 429, 504, 502]
    assert (await client.wait_until_ready(timeout_s=20)).generation == 2
    assert relay.connections == 6


async def test_starting_a_command_is_retried_and_it_runs_once(
    guest: GuestProcess, relay: Relay, client: GuestClient
) -> None:
    await client.hello()
    async with GuestClient(relay.url, None) as fresh:
        fresh._hello = client._hello
        relay.answers = [502, 429, 503]
        result = await fresh.exec(["sh", "-c", "echo ran >> runs; echo ok"])
    assert result.stdout == b"ok\n"
    assert (guest.workdir / "runs").read_text() == "ran\n"


async def test_a_guest_that_never_comes_back_names_the_job_that_goes_on(
    guest: GuestProcess, relay: Relay, client: GuestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RECONNECT_S", 3.0)
    started = asyncio.Event()

    async def on_output(_channel: str, _data: bytes) -> None:
        started.set()
        relay.answers = [502] * 1000

    await client.hello()
    # What tells of the job and its first line pass, the rest does not.
    relay.cut_after_bytes = 2000
    with pytest.raises(GuestUnreachable, match="lost the connection to job `j`, which goes on") as caught:
        await client.exec(
            ["sh", "-c", "echo up; sleep 0.1; seq 2000; exec sleep 1000"], job_id="j", on_output=on_output
        )
    assert started.is_set()
    assert caught.value.details["job"] == "j"
    async with GuestClient(guest.url, None) as direct:
        assert (await direct.jobs.get("j")).state is JobState.RUNNING


async def test_a_command_of_which_nobody_says_whether_it_began_is_not_said_not_to_have(
    guest: GuestProcess, relay: Relay, client: GuestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (streams, jobs):
        monkeypatch.setattr(module, "RECONNECT_S", 1.0)
    await client.hello()
    relay.cut_after_bytes = 1
    unknown = "before the guest said whether it started job `{}`"
    with pytest.raises(ConnectionLost, match=unknown.format("j")) as caught:
        await client.exec(["sleep", "1000"], job_id="j")
    assert caught.value.details["job"] == "j"
    with pytest.raises(ConnectionLost, match=unknown.format("k")):
        await client.jobs.start(JobRequest(["sleep", "1000"], job_id="k"))
    async with GuestClient(guest.url, None) as direct:
        assert {job.id for job in await direct.jobs.list() if job.state is JobState.RUNNING} == {"j", "k"}
    relay.answers = [502] * 1000
    with pytest.raises(GuestUnreachable, match="the command was not started") as refused:
        await client.exec(["true"])
    assert not isinstance(refused.value, ConnectionLost)


async def test_a_sandbox_that_ended_meanwhile_is_told_as_soon_as_its_guest_does_not_answer(relay: Relay) -> None:
    async def doubt() -> None:
        raise SandboxEnded("`app` was terminated")

    async def on_output(_channel: str, _data: bytes) -> None:
        relay.answers = [502] * 1000

    async with GuestClient(relay.url, Tokens(), doubt=doubt) as client:
        await client.hello()
        relay.cut_after_bytes = 2000
        with pytest.raises(SandboxEnded):
            await client.exec(["sh", "-c", "echo up; sleep 0.1; seq 2000; exec sleep 1000"], on_output=on_output)


async def test_a_guest_that_says_it_is_older_is_told_apart_from_one_that_is_down(
    relay: Relay, client: GuestClient
) -> None:
    relay.answers = [500] * 10
    with pytest.raises(Exception, match="HTTP 500"):
        await client.hello()
    relay.answers = [502] * 1000
    with pytest.raises(TimedOut):
        await client.wait_until_ready(timeout_s=0.3)


async def test_several_readers_of_one_job_see_the_same_and_one_that_stops_is_not_noticed(
    client: GuestClient,
) -> None:
    run = asyncio.create_task(client.exec(["sh", "-c", "for i in $(seq 50); do echo $i; sleep 0.01; done"], job_id="j"))
    while not [job for job in await client.jobs.list() if job.id == "j"]:
        pass

    async def read(stop_after: int) -> bytes:
        data = bytearray()
        async with aclosing(client.jobs.follow("j")) as pieces:
            async for piece in pieces:
                if isinstance(piece, JobOutput):
                    data += piece.data
                if len(data) >= stop_after:
                    break
        return bytes(data)

    full, part = await asyncio.gather(read(1 << 30), read(10))
    result = await run
    assert full == result.stdout == b"".join(b"%d\n" % n for n in range(1, 51))
    assert full.startswith(part)


async def test_what_the_guest_refuses_keeps_its_words(client: GuestClient) -> None:
    with pytest.raises(UsageError, match="no user `nobody-here`"):
        await client.exec(["true"], user="nobody-here")


GARBAGE = (
    (wire.encode(wire.Frame(wire.FrameType.DATA, 5, b"x", wire.Channel.OUT)), "output at 5 where 0 was next"),
    (wire.encode(wire.Frame(wire.FrameType.GAP, 0, b"short")), "GAP frame"),
    (b"\x02\x01\x00\x00\xff\xff\xff\xff" + bytes(8), "a frame claims"),
    (2 * wire.encode(wire.json_frame(wire.FrameType.EXIT, 0, {"code": 0})), "something came behind EXIT"),
    (wire.encode(wire.Frame(wire.FrameType.EXIT, 0, b"[]")), "not a JSON object"),
)


@pytest.mark.parametrize(("body", "words"), GARBAGE)
async def test_a_guest_that_sends_nonsense_is_an_error_at_once(body: bytes, words: str) -> None:
    hello = b'{"generation":2,"boot_id":"b"}'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        reply = hello if b"/v2/hello" in head else body
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(reply) + reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(5), GuestClient(url, None) as client:
        with pytest.raises(GuestUnreachable, match=words):
            await client.exec(["true"])
    server.close()
