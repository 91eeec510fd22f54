"""Jobs as services give them to every face, over a real guest."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from sbxtui.core.errors import Conflict, NotFound
from sbxtui.core.jobs import Job, JobExit, JobOutput, JobState, TerminalSize
from sbxtui.core.model import Registration
from sbxtui.guest.client import GuestClient
from sbxtui.services.jobs import Command, Jobs
from sbxtui.store.jobs import JobIndex
from sbxtui.wiring import Services
from tests.support.direct import direct_services, know
from tests.support.guest_process import GuestProcess, running_guest

Scene = tuple[Services, Registration, GuestProcess]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    services = direct_services(tmp_path / "home")
    async with running_guest(tmp_path) as guest:
        yield services, know(services, guest.url), guest
    services.close()


async def _tails(scene: Scene, count: int) -> None:
    services, row, _ = scene
    line = "i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); done; printf 'tail é' ; printf last >&2; exit 3"
    expected = b"".join(b"line %d\n" % number for number in range(20)) + "tail é".encode()
    for _ in range(count):
        result = await services.jobs.exec(row, Command(["sh", "-c", line]))
        assert (result.exit_code, result.stdout, result.stderr) == (3, expected, b"last")


async def test_the_tail_of_fifty_commands_is_byte_exact(scene: Scene) -> None:
    await _tails(scene, 50)


@pytest.mark.soak
async def test_the_tail_of_a_thousand_commands_is_byte_exact(scene: Scene) -> None:
    await _tails(scene, 1_000)


async def test_a_job_is_begun_followed_and_its_end_is_noted_by_whoever_sees_it(scene: Scene) -> None:
    services, row, _ = scene
    job = await services.jobs.start(row, Command("echo one; echo two >&2; exit 4", label="build"))
    pieces = [piece async for piece in services.jobs.follow(job)]
    heard = {piece.channel.value: piece.data for piece in pieces if isinstance(piece, JobOutput)}
    assert heard == {"out": b"one\n", "err": b"two\n"}
    ending = pieces[-1]
    assert isinstance(ending, JobExit)
    assert ending.exit_code == 4
    (noted,) = await services.jobs.known(row.context)
    assert (noted.state, noted.sandbox, noted.label, noted.actor) == (JobState.EXITED, "app", "build", "test")


async def test_jobs_that_others_began_are_found_and_noted(scene: Scene) -> None:
    services, row, guest = scene
    async with GuestClient(guest.url, None) as elsewhere:
        await elsewhere.exec(["true"], job_id="theirs", actor="mcp:x")
    found = await services.job_lists.find("their", row)
    assert (found.id, found.actor, found.state) == ("theirs", "mcp:x", JobState.EXITED)
    assert [job.id for job in await services.jobs.known(row.context)] == ["theirs"]


async def test_a_job_its_guest_forgot_is_forgotten_and_never_shown_as_running(scene: Scene) -> None:
    services, row, guest = scene
    job = await services.jobs.start(row, Command(["sleep", "100"]))
    async with GuestClient(guest.url, None) as elsewhere:
        await elsewhere.jobs.delete(job.id)
    assert await services.jobs.list(row) == []
    assert await services.jobs.known(row.context) == []
    with pytest.raises(NotFound):
        await services.jobs.look(job)


class BusyNeighbour(Jobs):
    """Jobs of somebody who begins one more while the index is read for the last time."""

    looks = 0

    async def known(self, context: str, sandbox_id: str | None = None) -> list[Job]:
        self.looks += 1
        if self.looks == 2:
            row = await asyncio.to_thread(self._registry.find, context, sandbox_id or "")
            await self.start(row, Command(["sleep", "100"]))
        return await super().known(context, sandbox_id)


async def test_a_job_that_begins_while_all_are_listed_is_listed_as_it_runs(scene: Scene) -> None:
    services, row, _ = scene
    jobs = BusyNeighbour(services.guests, services.registry, JobIndex(services.store), "test")
    (job,) = await jobs.list(row)
    assert (job.state, job.command) == (JobState.RUNNING, "sleep 100")


async def test_a_command_whose_output_nobody_takes_is_ended_and_forgotten(scene: Scene) -> None:
    services, row, _ = scene

    async def is_full(channel: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        await services.jobs.exec(row, Command(["yes"]), on_output=is_full)
    assert await services.jobs.known(row.context) == []


async def test_cancelling_a_command_ends_and_forgets_it(scene: Scene) -> None:
    services, row, _ = scene
    started: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(services.jobs.exec(row, Command(["sleep", "100"]), on_started=started.set_result))
    await started
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await services.jobs.list(row) == []
    kinds = [event.kind for event in services.events.list() if event.kind.startswith("job.")]
    assert kinds == ["job.start", "job.remove"]


async def test_a_terminal_is_typed_into_resized_and_left_without_ending_it(scene: Scene) -> None:
    services, row, _ = scene
    job = await services.jobs.start(row, Command(["sh"], terminal=TerminalSize(61, 17)))
    seen = bytearray()
    has_more = asyncio.Event()

    async def see(channel: str, data: bytes) -> None:
        assert channel == "pty"
        seen.extend(data)
        has_more.set()

    async def until(text: bytes) -> None:
        while text not in seen:
            has_more.clear()
            await has_more.wait()

    typed: asyncio.Queue[bytes] = asyncio.Queue()

    async def keys() -> AsyncIterator[bytes]:
        while piece := await typed.get():
            yield piece

    async with asyncio.timeout(60), services.jobs.attach(job) as attachment:
        running = asyncio.create_task(attachment.run(stdin=keys(), on_output=see))
        typed.put_nowait(b"stty size\r")
        await until(b"17 61")
        await attachment.resize(TerminalSize(99, 44))
        typed.put_nowait(b"stty size\r")
        await until(b"44 99")
        running.cancel()
    assert (await services.jobs.look(job)).state is JobState.RUNNING
    await services.jobs.signal(job, "KILL")
    ending = [piece async for piece in services.jobs.follow(job)][-1]
    assert isinstance(ending, JobExit)
    assert ending.signal == 9
    with pytest.raises(Conflict, match="has ended with exit code 137"):
        await services.jobs.signal(job)


async def test_what_a_job_that_keeps_printing_has_said_comes_to_an_end(scene: Scene) -> None:
    services, row, _ = scene
    # Not so fast that the log turns over while it is looked at.
    job = await services.jobs.start(row, Command(["sh", "-c", "while head -c 65536 /dev/zero; do sleep 0.001; done"]))
    try:
        async with asyncio.timeout(60):
            while (job := await services.jobs.look(job)).cursor < 3 << 20:
                pass
            async with aclosing(services.jobs.follow(job, until_quiet=True)) as pieces:
                assert [piece async for piece in pieces if isinstance(piece, JobOutput)]
            async with services.jobs.attach(job) as attachment:
                data, cursor = await attachment.latest(1000)
        assert len(data) == 1000
        assert cursor > 3 << 20
    finally:
        await services.jobs.remove(job)
