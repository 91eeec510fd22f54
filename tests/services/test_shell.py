"""Pseudo-shells as services give them to faces, over a real guest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sbxtui.core.errors import Conflict, NotFound
from sbxtui.core.jobs import Job, JobState, TerminalSize
from sbxtui.core.model import Registration
from sbxtui.guest.jobs import new_job_id
from sbxtui.services.shell import PseudoShell
from sbxtui.wiring import Services
from tests.support.direct import direct_services, know
from tests.support.guest_process import GuestProcess, running_guest
from tests.support.relay import running_relay

Scene = tuple[Services, Registration, GuestProcess]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    services = direct_services(tmp_path / "home")
    async with running_guest(tmp_path) as guest, asyncio.timeout(90):
        yield services, know(services, guest.url), guest
    services.close()


@pytest.fixture
async def shell(scene: Scene) -> AsyncIterator[PseudoShell]:
    services, row, _ = scene
    async with services.shells.open(row) as shell:
        yield shell


async def test_lines_share_folder_and_variables_and_say_where_the_shell_is(scene: Scene, shell: PseudoShell) -> None:
    assert (await shell.look()).cwd == ""
    first = await shell.run("mkdir -p a/b; cd a/b; export X=kept; false")
    assert (first.result.exit_code, first.cwd, first.is_kept) == (1, f"{scene[2].workdir}/a/b", True)
    assert (await shell.run("echo $X; pwd")).result.stdout == f"kept\n{scene[2].workdir}/a/b\n".encode()
    view = await shell.look()
    assert (view.cwd, "X" in view.variables, view.queue) == (first.cwd, True, ())
    lost = await shell.run("cd /; kill -9 $$")
    assert (lost.result.signal, lost.is_kept, lost.cwd) == (9, False, first.cwd)
    assert lost.why


async def test_output_comes_as_it_is_said_and_lines_are_jobs_of_their_author(scene: Scene, shell: PseudoShell) -> None:
    heard: list[tuple[str, bytes]] = []

    async def hear(channel: str, data: bytes) -> None:
        heard.append((channel, data))

    end = await shell.run("echo out; echo err >&2", on_output=hear)
    assert sorted(heard) == [("err", b"err\n"), ("out", b"out\n")]
    assert end.result.stdout == b""
    (job,) = await scene[0].jobs.list(scene[1])
    assert (job.actor, job.command, job.state) == ("test", "echo out; echo err >&2", JobState.EXITED)


async def test_a_line_that_waits_may_be_taken_back_and_one_that_runs_interrupted(shell: PseudoShell) -> None:
    started: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
    first = asyncio.create_task(shell.run("echo up; sleep 100", on_started=started.set_result))
    job = await started
    waiting_id = new_job_id()
    second = asyncio.create_task(shell.run("echo never", job_id=waiting_id))
    while len((await shell.look()).queue) < 2:
        await asyncio.sleep(0.01)
    with pytest.raises(Conflict):
        await shell.cancel(job.id)
    await shell.cancel(waiting_id)
    with pytest.raises(Conflict, match="taken out of the queue"):
        await second
    with pytest.raises(NotFound):
        await shell.cancel(waiting_id)
    await shell.signal(job)
    # A shell that is just starting a program may swallow it, as on any terminal: then a person presses again.
    while not (await asyncio.wait((first,), timeout=2))[0]:
        await shell.signal(job)
    assert (await first).result.exit_code == 130
    assert (await shell.run("echo next")).result.stdout == b"next\n"


async def test_a_line_nobody_follows_any_more_goes_on_and_is_found_by_its_job(scene: Scene, shell: PseudoShell) -> None:
    services, _, guest = scene
    started: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
    line = "while ! [ -e go ]; do sleep 0.02; done; export DONE=1"
    running = asyncio.create_task(shell.run(line, on_started=started.set_result))
    job = await started
    running.cancel()
    (guest.workdir / "go").touch()
    async with services.jobs.attach(job) as attachment:
        assert (await attachment.run()).exit_code == 0
    assert (await shell.run("echo $DONE")).result.stdout == b"1\n"


async def test_input_and_terminals_work_in_lines(shell: PseudoShell) -> None:
    assert (await shell.run("tr a-z A-Z", stdin=b"typed")).result.stdout == b"TYPED"
    end = await shell.run("stty size; test -t 0 && echo yes", terminal=TerminalSize(70, 20))
    assert end.result.stdout == b"20 70\r\nyes\r\n"


async def test_words_are_completed_where_the_shell_is(scene: Scene, shell: PseudoShell) -> None:
    await shell.run("mkdir -p sub/folder; touch sub/file 'sub/fi le'; cd sub")
    found = await shell.complete("f")
    assert [(one.name, one.is_folder) for one in found.candidates] == [
        ("fi le", False),
        ("file", False),
        ("folder", True),
    ]
    assert (await shell.complete("../sub/fo")).base == "../sub/"
    assert "sh" in [one.name for one in (await shell.complete("s", is_command=True)).candidates]


async def test_lines_over_a_connection_that_is_cut_while_they_wait_and_run_are_run_once(scene: Scene) -> None:
    services, row, guest = scene
    async with running_relay(guest.port) as relay, services.shells.open(replace(row, endpoint=relay.url)) as shell:
        await shell.run("true")
        relay.cut_after_bytes = 30_000
        lines = [shell.run(f"echo {n} >> ran; seq 1 20000") for n in range(3)]
        ends = await asyncio.gather(*lines)
    assert all(end.result.stdout == b"".join(b"%d\n" % n for n in range(1, 20_001)) for end in ends)
    assert sorted((guest.workdir / "ran").read_text().split()) == ["0", "1", "2"]
    assert relay.cuts >= 3
