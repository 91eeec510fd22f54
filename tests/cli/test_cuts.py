"""The command line on a line that is cut, and before readers that stall: not a byte lost or doubled."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sbxguest import wire
from sbxtui.core.jobs import JobState
from sbxtui.guest.client import GuestClient
from tests.support.direct import NAME, direct_sbx, direct_services, know
from tests.support.guest_process import GuestProcess, running_guest
from tests.support.relay import Relay, running_relay
from tests.support.sbx import Sbx


@dataclass(frozen=True)
class Line:
    """An `sbx`, and the line between it and its guest."""

    sbx: Sbx
    guest: GuestProcess
    relay: Relay

    async def run(self, shell_line: str) -> subprocess.CompletedProcess[bytes]:
        """Run a line of a shell in which `$SBX` is a command in the sandbox."""
        env = {**self.sbx.environment(), "SBX": f"{self.sbx.command} exec {NAME} --"}
        command = ["bash", "-o", "pipefail", "-c", shell_line]
        return await asyncio.to_thread(
            subprocess.run, command, env=env, cwd=self.sbx.home, capture_output=True, timeout=110, check=False
        )


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    home = tmp_path / "home"
    async with running_guest(tmp_path) as guest, running_relay(guest.port) as relay:
        services = direct_services(home)
        know(services, relay.url)
        services.close()
        yield Line(direct_sbx(home), guest, relay)


@pytest.mark.slow
async def test_twenty_five_cuts_in_100_mb_lose_and_double_no_byte(line: Line, tmp_path: Path) -> None:
    line.relay.cut_after_bytes = 3_900_000
    done = await line.run("$SBX sh -c 'seq 1 12800000; echo end >&2; exit 6' > out")
    assert (done.returncode, done.stderr) == (6, b"end\n")
    expected = await asyncio.to_thread(subprocess.check_output, ["sh", "-c", "seq 1 12800000 | sha256sum"])
    assert (line.sbx.home / "out").stat().st_size > 100_000_000
    with (line.sbx.home / "out").open("rb") as out:
        assert hashlib.file_digest(out, "sha256").hexdigest() == expected.split()[0].decode()
    assert line.relay.cuts >= 25


@pytest.mark.slow
async def test_a_connection_that_stays_lost_is_255_and_says_how_to_come_back(line: Line) -> None:
    running = asyncio.create_task(line.run("$SBX sh -c 'echo up; exec sleep 1000' > out"))
    out = line.sbx.home / "out"
    async with GuestClient(line.guest.url, None) as client, asyncio.timeout(100):
        while not out.exists() or not out.read_bytes():
            await asyncio.sleep(0.01)
        jobs = await client.jobs.list()
        line.relay.answers = [502] * 10_000
        line.relay.cut()
        done = await running
        assert (done.returncode, out.read_bytes()) == (255, b"up\n"), done.stderr
        assert f"sbx attach {NAME} {jobs[0].id} --from 3".encode() in done.stderr
        assert (await client.jobs.get(jobs[0].id)).state is JobState.RUNNING
        # Nothing was said of it before: the link may have come back.
        assert done.stderr.startswith(b"error: lost the connection to job")


async def test_a_server_killed_in_the_middle_of_a_stream_loses_and_doubles_no_byte(line: Line) -> None:
    running = asyncio.create_task(line.run("$SBX sh -c 'seq 1 300000; sleep 0.5; seq 1 300000; exit 5' | sha256sum"))
    async with GuestClient(line.guest.url, None) as client:
        async with asyncio.timeout(60):
            while not any(job.cursor for job in await client.jobs.list()):
                await asyncio.sleep(0.01)
    for _ in range(2):
        await line.guest.kill_server()
    done = await running
    twice = b"".join(b"%d\n" % number for number in range(1, 300_001)) * 2
    assert (done.returncode, done.stdout.split()[0].decode()) == (5, hashlib.sha256(twice).hexdigest()), done.stderr


async def test_a_reader_that_stalls_holds_the_command_and_loses_nothing(line: Line) -> None:
    size_bytes = 3 * wire.RING_BYTES
    client = line.sbx.spawn("exec", NAME, "--", "sh", "-c", f"yes 0123456789 | head -c {size_bytes}")
    assert client.stdout is not None
    async with GuestClient(line.guest.url, None) as guest, asyncio.timeout(60):
        while not any(job.cursor >= wire.RING_BYTES for job in await guest.jobs.list()):
            await asyncio.sleep(0.02)
        out, _ = await asyncio.to_thread(client.communicate, None, 60)
    assert client.returncode == 0
    assert out == (b"0123456789\n" * (size_bytes // 11 + 1))[:size_bytes]


async def test_what_others_watch_is_not_lost_to_who_reads_slowly(line: Line) -> None:
    size_bytes = 3 * wire.RING_BYTES
    client = line.sbx.spawn("exec", NAME, "--", "sh", "-c", f"yes 0123456789 | head -c {size_bytes}")
    assert client.stdout is not None
    async with GuestClient(line.guest.url, None) as guest, asyncio.timeout(60):
        while not (jobs := await guest.jobs.list()):
            await asyncio.sleep(0.02)
        # A watcher that is as fast as can be; the one who holds the job has read nothing yet.
        watcher = line.sbx.spawn("output", "--follow", NAME, jobs[0].id)
        assert watcher.stdout is not None
        head = await asyncio.to_thread(watcher.stdout.read, wire.RING_BYTES // 2)
        assert len(head) == wire.RING_BYTES // 2
        out, _ = await asyncio.to_thread(client.communicate, None, 60)
        await asyncio.to_thread(watcher.communicate, None, 60)
    assert (client.returncode, len(out)) == (0, size_bytes)
    assert watcher.returncode == 0


async def test_input_on_a_line_that_is_cut_arrives_once_and_ends(line: Line, tmp_path: Path) -> None:
    line.relay.cut_after_bytes = 200_000
    (line.sbx.home / "in").write_bytes(bytes(range(256)) * 8_000)
    done = await line.run("${SBX/exec/exec -i} sha256sum < in && ${SBX/exec/exec -i} cat < in | cmp - in")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0].decode() == hashlib.sha256(bytes(range(256)) * 8_000).hexdigest()
