"""The guest's own log: every job's lines in one order, whole over a killed server, and what is gone is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx

from sbxtui.core.logs import LineMaker, LogChunk, LogLine
from sbxtui.guest.logs import GuestLogs, Place
from sbxtui.guest.transport import Transport
from tests.support.guest_process import GuestProcess

DEADLINE_S = 60
NOWHERE = Place()
LINES = 3000
WAIT = "[ -e go ] || sleep 0.01"
RESTARTED = "the guest's server was started again; jobs went on"


@asynccontextmanager
async def reader(guest: GuestProcess) -> AsyncIterator[GuestLogs]:
    async with Transport(guest.url, None) as transport:
        yield GuestLogs(transport)


async def begin(guest: GuestProcess, job_id: str, shell: str) -> None:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http:
        (await http.post("/v2/jobs", json={"id": job_id, "shell": shell})).raise_for_status()


async def run(guest: GuestProcess, job_id: str, shell: str) -> None:
    async with httpx.AsyncClient(base_url=guest.url, timeout=60) as http:
        answer = await http.post("/v2/jobs?wait_s=25", json={"id": job_id, "shell": shell})
        assert answer.json()["exit"] is not None


async def there(guest: GuestProcess, place: Place = NOWHERE, **query: Any) -> tuple[Place, list[LogLine]]:
    """All that is kept from a place on, and where it ends."""
    maker, lines = LineMaker(), list[LogLine]()
    async with reader(guest) as logs, asyncio.timeout(DEADLINE_S):
        async for piece in logs.read(place, is_following=False, **query):
            if isinstance(piece, Place):
                place = piece
            else:
                place = Place(place.log, piece.cursor)
                lines += maker.lines(piece)
    return place, [*lines, *maker.rest()]


def texts(lines: Iterable[LogLine], job: str) -> list[str]:
    return [line.text for line in lines if line.job == job and line.is_output]


async def test_lines_of_all_jobs_stand_in_one_order_with_whose_they_are(guest: GuestProcess) -> None:
    place, _ = await there(guest)
    await run(guest, "one", "echo first; echo bad >&2; printf 'no end'")
    await run(guest, "two", "printf 'a\\377b\\n'; exit 3")
    end, lines = await there(guest, place)
    told = [(line.job, line.channel, line.text) for line in lines]
    assert told[0][:2] == ("one", "event")
    assert sorted(told[1:4]) == [("one", "err", "bad"), ("one", "out", "first"), ("one", "out", "no end")]
    assert told[4] == ("one", "event", "job one ended with 0")
    assert told[6:] == [("two", "out", "a\ufffdb"), ("two", "event", "job two ended with 3")]
    assert [line.at for line in lines] == sorted(line.at for line in lines)

    assert (await there(guest, end))[1] == []
    _, last = await there(guest, tail=2)
    assert texts(last, "two") == ["a\ufffdb"]
    _, since = await there(guest, since=lines[6].at)
    assert texts(since, "two") == ["a\ufffdb"] and len(since) <= 3


async def test_following_loses_no_line_and_doubles_none_over_killed_servers(guest: GuestProcess) -> None:
    place, _ = await there(guest)
    await begin(guest, "count", f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); {WAIT}; done")
    maker, seen = LineMaker(), list[LogLine]()
    for is_cut in (True, True, False):
        if not is_cut:
            # No sooner: it could have ended before a server is killed, and would be told of before that.
            (guest.workdir / "go").touch()
        async with (
            reader(guest) as logs,
            asyncio.timeout(DEADLINE_S),
            aclosing(logs.read(place, is_following=True)) as pieces,
        ):
            place, more = await _some(pieces, place, maker, count=40 if is_cut else LINES)
            seen += more
        if is_cut:
            await guest.kill_server()
    assert texts(seen, "count") == [f"line {number}" for number in range(LINES)]
    assert [line.text for line in seen if line.channel == "gap"] == []
    told = [line.text for line in seen if line.channel == "event"]
    assert told == [told[0], RESTARTED, RESTARTED, "job count ended with 0"]


async def _some(
    pieces: AsyncIterator[Place | LogChunk], place: Place, maker: LineMaker, *, count: int
) -> tuple[Place, list[LogLine]]:
    lines: list[LogLine] = []
    async for piece in pieces:
        if isinstance(piece, Place):
            assert place.log in ("", piece.log)
            place = piece
            continue
        place = Place(place.log, piece.cursor)
        lines += maker.lines(piece)
        if len(texts(lines, "count")) >= count or any(
            "ended" in line.text for line in lines if line.channel == "event"
        ):
            break
    return place, lines


async def test_what_a_removed_job_said_is_told_to_be_gone(guest: GuestProcess) -> None:
    place, _ = await there(guest)
    await run(guest, "gone", "echo secret")
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http:
        (await http.delete("/v2/jobs/gone")).raise_for_status()
    _, lines = await there(guest, place)
    assert [line.text for line in lines if line.channel == "gap"] == ["7 bytes of job gone are no longer kept"]
    assert "secret" not in json.dumps([line.text for line in lines if line.is_output])


async def test_a_log_that_is_another_one_is_read_from_its_beginning(guest: GuestProcess) -> None:
    await run(guest, "job", "echo here")
    place, lines = await there(guest, Place("f" * 32, 10**12))
    assert place.log != "f" * 32
    assert texts(lines, "job") == ["here"]
