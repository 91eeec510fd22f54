"""Jobs of a guest that answers slowly, or tells of others each time: it takes neither time nor the log from anybody."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable
from sbxtui.core.jobs import JobState
from sbxtui.core.model import SandboxState
from sbxtui.guest.transport import Transport
from sbxtui.services.joblist import JobLists
from sbxtui.services.jobwatch import JobWatch
from sbxtui.services.looks import Looks
from sbxtui.wiring import Services
from tests.support.direct import direct_services, know

_HELLO = b'{"generation":2,"boot_id":"b"}'


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = direct_services(tmp_path / "home")
    yield made
    made.close()


@asynccontextmanager
async def guest(jobs: Iterator[object] | None) -> AsyncIterator[str]:
    """A guest that says hello and tells the next of `jobs` at each look; without them it trickles for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/v2/hello" in head or jobs is not None:
                body = _HELLO if b"/v2/hello" in head else json.dumps({"jobs": next(jobs or iter(()))}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
            else:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n")
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.02)  # how slowly it trickles is the case
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(60), server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_an_answer_that_trickles_for_ever_is_no_answer() -> None:
    async with guest(None) as url, Transport(url, None) as transport:
        with pytest.raises(GuestUnreachable, match="did not answer in time"):
            await transport.call("GET", "/v2/jobs", doing="listing jobs", timeout_s=0.5)


async def test_a_sandbox_that_does_not_come_to_an_end_is_listed_as_last_known(services: Services) -> None:
    async with guest(None) as url:
        row = know(services, url)
        lists = JobLists(services.context, services.inventories, services.registry, services.jobs, answer_s=0.5)
        listing = await lists.of(row, SandboxState.RUNNING)
    assert listing.jobs == ()
    assert listing.problems == ("`app` could not be asked: `app` did not tell its jobs within 0.5 s",)


async def test_jobs_a_guest_knows_no_more_are_forgotten_without_asking_for_each(services: Services) -> None:
    many = [{"id": f"j{number}", "state": "running"} for number in range(50)]
    async with guest(iter([many, []])) as url:
        row = know(services, url)
        assert len(await services.jobs.list(row)) == 50
        assert await services.jobs.list(row) == []
        assert await services.jobs.known(row.context) == []


async def test_what_a_look_notes_is_no_reason_for_the_next_look(services: Services) -> None:
    looks = itertools.count()
    made_up = ([{"id": f"j{look}", "state": "running"}] for look in looks)
    async with guest(made_up) as url:
        row = know(services, url)
        may = Looks(services.context, services.planes, services.links)
        seen = (services.job_lists, services.jobs, services.troubles, may)
        watch = JobWatch(services.settings.home, *seen, every_s=3600)
        async with aclosing(watch.follow(row, SandboxState.RUNNING, is_asked=True)) as listings:
            (told,) = (await anext(listings)).jobs
            assert told.state is JobState.RUNNING
            next_look = asyncio.ensure_future(anext(listings))
            await asyncio.wait([next_look], timeout=2)  # long enough for the bell of its own look
            assert not next_look.done()
            await services.jobs.notes.started(dataclasses.replace(told, id="ours"))
            await next_look
    assert next(looks) == 2
