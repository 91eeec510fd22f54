"""File contents through a real guest: exact, atomic, in bounded memory, and never stuck."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.support.guest_process import GuestProcess

MIB = 1024 * 1024
RSS_GROWTH_MAX_BYTES = 20 * MIB
HEALTHY_S = 1.0


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=60) as client:
        yield client


def url(path: str | bytes, **query: str) -> str:
    rest = "".join(f"&{key}={value}" for key, value in query.items())
    return f"/v2/files?path={quote(path)}{rest}"


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError(pid)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".sbx-put-*")]


async def blocks(block: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield block


async def test_a_hundred_megabytes_go_up_and_come_down_unchanged_in_little_memory(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    block, count = os.urandom(MIB), 100
    await http.put(url("warm-up"), content=b"x" * MIB)
    before = rss_bytes(guest.server_pid)
    answer = await http.put(url("big"), content=blocks(block, count))
    assert (answer.status_code, answer.json()["size_bytes"]) == (201, count * MIB)
    expected, received = hashlib.sha256(), hashlib.sha256()
    for _ in range(count):
        expected.update(block)
    async with http.stream("GET", url("big")) as download:
        assert download.headers["content-length"] == str(count * MIB)
        async for chunk in download.aiter_raw():
            received.update(chunk)
    assert received.digest() == expected.digest()
    assert rss_bytes(guest.server_pid) - before <= RSS_GROWTH_MAX_BYTES


async def test_the_guest_stays_healthy_while_a_large_file_is_written(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    upload = asyncio.create_task(http.put(url("big"), content=blocks(bytes(MIB), 200)))
    async with httpx.AsyncClient(base_url=guest.url, timeout=HEALTHY_S) as probe:
        while not upload.done():
            assert (await probe.get("/healthz")).status_code == 200
    assert (await upload).status_code == 201


async def test_mode_time_and_parents_are_set_as_asked(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    answer = await http.put(
        url("a/b/c.sh", mode="750", mtime="1700000000.123456789", parents="1"), content=b"#!/bin/sh\n"
    )
    assert answer.status_code == 201
    found = (guest.workdir / "a/b/c.sh").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o750, 1_700_000_000_123_456_789)
    head = await http.head(url("a/b/c.sh"))
    assert head.headers["x-sbx-mode"] == "0750"
    assert head.headers["x-sbx-mtime-ns"] == "1700000000123456789"
    assert (head.headers["content-length"], head.content) == ("10", b"")


async def test_a_new_content_keeps_the_mode_the_file_has(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    script = guest.workdir / "run.sh"
    script.write_bytes(b"old")
    script.chmod(0o755)
    await http.put(url("run.sh"), content=b"new")
    assert (script.read_bytes(), stat.S_IMODE(script.stat().st_mode)) == (b"new", 0o755)


async def test_a_missing_folder_is_an_error_unless_parents_are_asked_for(http: httpx.AsyncClient) -> None:
    answer = await http.put(url("no/such/file"), content=b"x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_not_found")


RANGES = [
    ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
    ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
    ("bytes=-3", 206, b"789", "bytes 7-9/10"),
    ("bytes=-99", 200, b"0123456789", None),
    ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
    ("bytes=10-", 416, b"", "bytes */10"),
    ("bytes=-0", 416, b"", "bytes */10"),
    ("bytes=5-2", 200, b"0123456789", None),
    ("bytes=0-1,4-5", 200, b"0123456789", None),
    ("lines=1-2", 200, b"0123456789", None),
    ("bytes=", 200, b"0123456789", None),
]


async def test_ranges_are_answered_as_http_says(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    (guest.workdir / "ten").write_bytes(b"0123456789")
    for asked, status, content, said in RANGES:
        answer = await http.get(url("ten"), headers={"range": asked})
        body = b"" if status == 416 else answer.content
        found = (answer.status_code, body, answer.headers.get("content-range"))
        assert found == (status, content, said), asked


async def test_a_range_of_a_file_that_changed_gives_the_whole_new_file(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    (guest.workdir / "f").write_bytes(b"first")
    etag = (await http.get(url("f"))).headers["etag"]
    assert (await http.get(url("f"), headers={"range": "bytes=0-1", "if-range": etag})).status_code == 206
    await http.put(url("f"), content=b"second")
    answer = await http.get(url("f"), headers={"range": "bytes=0-1", "if-range": etag})
    assert (answer.status_code, answer.content) == (200, b"second")


async def test_an_upload_cut_in_the_middle_leaves_the_old_content_and_nothing_else(guest: GuestProcess) -> None:
    (guest.workdir / "f").write_bytes(b"old")
    _, writer = await asyncio.open_connection("127.0.0.1", guest.port)
    writer.write(b"PUT /v2/files?path=f HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\n" + b"n" * 3_000_000)
    await writer.drain()
    async with asyncio.timeout(10):
        while not leftovers(guest.workdir):
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while leftovers(guest.workdir):
            await asyncio.sleep(0.01)
    assert (guest.workdir / "f").read_bytes() == b"old"


async def test_a_server_killed_in_the_middle_of_an_upload_leaves_the_old_content_and_cleans_up_later(
    guest: GuestProcess,
) -> None:
    (guest.workdir / "f").write_bytes(b"old")
    _, writer = await asyncio.open_connection("127.0.0.1", guest.port)
    writer.write(b"PUT /v2/files?path=f HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\n" + b"n" * 3_000_000)
    await writer.drain()
    async with asyncio.timeout(10):
        while not leftovers(guest.workdir):
            await asyncio.sleep(0.01)
    await guest.kill_server()
    writer.close()
    assert (guest.workdir / "f").read_bytes() == b"old"
    assert leftovers(guest.workdir) == []


async def test_of_two_uploads_at_once_one_wins_whole(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    one, two = blocks(b"1" * MIB, 8), blocks(b"2" * MIB, 8)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for content in (one, two):
            group.create_task(http.put(url("f"), content=content))
    assert (guest.workdir / "f").read_bytes() in (b"1" * 8 * MIB, b"2" * 8 * MIB)
    assert leftovers(guest.workdir) == []


async def test_of_two_uploads_with_the_same_precondition_one_is_refused(http: httpx.AsyncClient) -> None:
    await http.put(url("f"), content=b"base")
    digest = hashlib.sha256(b"base").hexdigest()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        uploads = [
            group.create_task(http.put(url("f", if_sha256=digest), content=blocks(text * MIB, 3)))
            for text in (b"1", b"2")
        ]
    assert sorted(upload.result().status_code for upload in uploads) == [201, 409]


async def test_a_precondition_that_does_not_hold_changes_nothing(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    (guest.workdir / "f").write_bytes(b"mine")
    for digest in ("none", "0" * 64):
        answer = await http.put(url("f", if_sha256=digest), content=b"yours")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert (await http.put(url("new", if_sha256="none"), content=b"x")).status_code == 201
    assert (guest.workdir / "f").read_bytes() == b"mine"
    assert leftovers(guest.workdir) == []


async def test_a_link_is_written_through_and_stays_a_link(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    (guest.workdir / "sub").mkdir()
    (guest.workdir / "link").symlink_to("sub/target")
    assert (await http.put(url("link"), content=b"content")).status_code == 201
    assert (guest.workdir / "link").is_symlink()
    assert (guest.workdir / "sub/target").read_bytes() == b"content"
    assert (await http.get(url("link"))).content == b"content"
    (guest.workdir / "loop").symlink_to("loop")
    for answer in (await http.get(url("loop")), await http.put(url("loop"), content=b"x")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_path")


async def test_names_that_are_not_utf8_and_names_of_full_length_round_trip(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    for name in (b"\xff\xfe caf\xe9", b"a?b&c=d#e%41 \n", "ü€😀".encode(), b"n" * 255):
        assert (await http.put(url(name), content=name)).status_code == 201
        assert (await http.get(url(name))).content == name
        assert Path(os.fsdecode(os.fsencode(guest.workdir) + b"/" + name)).read_bytes() == name


async def test_folders_and_special_files_are_refused_without_waiting_for_anybody(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    os.mkfifo(guest.workdir / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(guest.workdir / "socket"))
    (guest.workdir / "dir").mkdir()
    cases = {
        "fifo": "special_file",
        "socket": "special_file",
        "/dev/zero": "special_file",
        "dir": "is_a_directory",
        "dir/": "is_a_directory",
    }
    async with asyncio.timeout(10):
        for path, code in cases.items():
            answers = [await http.get(url(path)), await http.put(url(path), content=b"x")]
            assert [answer.json()["error"]["code"] for answer in answers] == [code, code], path
    listener.close()
    assert stat.S_ISFIFO((guest.workdir / "fifo").stat().st_mode)


async def test_files_of_the_kernel_that_claim_to_be_empty_are_read(http: httpx.AsyncClient) -> None:
    assert b"MemTotal" in (await http.get(url("/proc/meminfo"))).content
    assert (await http.get(url("/proc/self/nothing"))).status_code == 404


async def test_a_file_that_shrinks_while_it_is_read_ends_as_a_cut(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    big = guest.workdir / "big"
    with big.open("wb") as file:
        file.truncate(200 * MIB)
    with pytest.raises(httpx.RemoteProtocolError):
        async with http.stream("GET", url("big")) as download:
            async for _ in download.aiter_raw():
                os.truncate(big, MIB)


BAD_QUERIES = [
    "",
    "?path=",
    "?path=a%00b",
    "?path=f&mode=9",
    "?path=f&mode=77777",
    "?path=f&mtime=yesterday",
    "?path=f&if_sha256=abc",
]


async def test_a_query_that_makes_no_sense_is_a_400_and_changes_nothing(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    for query in BAD_QUERIES:
        answer = await http.put(f"/v2/files{query}", content=b"x")
        assert answer.status_code == 400, query
    assert list(guest.workdir.iterdir()) == []


async def test_a_file_larger_than_the_disk_is_refused_before_it_is_sent(guest: GuestProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", guest.port)
    writer.write(b"PUT /v2/files?path=f HTTP/1.1\r\nhost: x\r\ncontent-length: 999999999999999\r\n\r\n")
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readuntil(b"}}")
    writer.close()
    assert head.startswith(b"HTTP/1.1 507 ") and b'"disk_full"' in body
    assert list(guest.workdir.iterdir()) == []


async def test_a_broken_upload_does_not_keep_the_connection_from_others(guest: GuestProcess) -> None:
    async with httpx.AsyncClient(base_url=guest.url, timeout=10) as http:
        for _ in range(20):
            assert (await http.put(url("no/such/folder"), content=blocks(bytes(MIB), 2))).status_code == 404
        assert (await http.put(url("f"), content=b"x")).status_code == 201
