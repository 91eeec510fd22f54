"""Following the jobs of a sandbox: at once when somebody here acts, soon when nobody does, and never for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from sbxtui.core.jobs import JobState
from sbxtui.core.life import KEEP_AWAKE
from sbxtui.core.model import IdlePolicy, SandboxState
from sbxtui.guest.client import GuestClient
from sbxtui.identity import own_identity
from sbxtui.services.joblist import JobListing
from sbxtui.services.jobs import Command
from tests.support.guest_services import GuestScene, guest_scene


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[GuestScene]:
    async with guest_scene(tmp_path) as found, asyncio.timeout(60):
        yield found


def following(
    scene: GuestScene, *, is_asked: bool, state: SandboxState = SandboxState.RUNNING
) -> AsyncGenerator[JobListing, None]:
    return scene.real.job_watch.follow(scene.row, state, is_asked=is_asked)


async def until(listings: AsyncIterator[JobListing], states: dict[str, JobState]) -> JobListing:
    """Look until the jobs with their states are just these."""
    async for listing in listings:
        if {job.id: job.state for job in listing.jobs} == states:
            return listing
    raise AssertionError("it ended")


async def test_a_job_is_seen_to_begin_and_to_end_though_nobody_follows_it(scene: GuestScene) -> None:
    async with aclosing(following(scene, is_asked=True)) as listings:
        assert (await anext(listings)).jobs == ()
        job = await scene.real.jobs.start(scene.row, Command(["sh", "-c", "while ! [ -e go ]; do sleep 0.05; done"]))
        await until(listings, {job.id: JobState.RUNNING})
        (scene.guest.workdir / "go").touch()
        await until(listings, {job.id: JobState.EXITED})


async def test_what_nobody_here_noted_is_told_only_when_a_person_asks_and_keeps_its_author(scene: GuestScene) -> None:
    async with GuestClient(scene.guest.url, None) as elsewhere:
        await elsewhere.exec(["true"], job_id="theirs", actor="mcp:x")
    async with aclosing(following(scene, is_asked=False)) as listings:
        assert (await anext(listings)).jobs == ()
    async with aclosing(following(scene, is_asked=True)) as listings:
        listing = await until(listings, {"theirs": JobState.EXITED})
        assert listing.jobs[0].actor == "mcp:x"
        # The index, which is read now, has only the guest's word for who it was.
        assert (await anext(listings)).jobs[0].actor == "mcp:x"


async def test_a_running_job_is_asked_about_no_longer_than_that_keeps_nothing_awake_that_nobody_keeps_so(
    scene: GuestScene,
) -> None:
    # An idle window that is over at once.
    row = replace(scene.row, request=replace(scene.row.request, idle=IdlePolicy(max_idle_s=0, suspended_s=600)))
    job = await scene.real.jobs.start(row, Command(["sh", "-c", "while ! [ -e go ]; do sleep 0.05; done"]))
    async with aclosing(scene.real.job_watch.follow(row, SandboxState.RUNNING, is_asked=False)) as listings:
        for _ in range(2):
            listing = await anext(listings)
            assert [(one.id, one.state) for one in listing.jobs] == [(job.id, JobState.RUNNING)]
            assert "not asked: that would keep it awake" in listing.problems[0]
            (scene.guest.workdir / "go").touch()
        link = scene.real.links.take(
            context=row.context,
            kind=KEEP_AWAKE,
            sandbox=row.name,
            sandbox_id=row.id,
            spec={},
            owner=str(own_identity()),
            actor="test",
        )
        scene.real.links.say(link, {"state": "awake"})
        assert (await until(listings, {job.id: JobState.EXITED})).problems == ()


async def test_a_sandbox_that_does_not_run_is_not_asked(scene: GuestScene) -> None:
    job = await scene.real.jobs.start(scene.row, Command(["sleep", "100"]))
    async with aclosing(following(scene, is_asked=True, state=SandboxState.SUSPENDED)) as listings:
        listing = await anext(listings)
    assert [(one.id, one.state) for one in listing.jobs] == [(job.id, JobState.UNKNOWN)]
    assert "is suspended: its jobs are as last known" in listing.problems[0]
