"""The host's side of files against a real guest, and against servers that answer nonsense."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sbxtui.core.errors import (
    AccessDenied,
    Conflict,
    FileMissing,
    GuestUnreachable,
    QuotaExceeded,
    SbxError,
    UsageError,
)
from sbxtui.guest.client import GuestClient
from sbxtui.guest.faults import MAX_ANSWER_BYTES
from sbxtui.guest.files import GuestFiles
from sbxtui.guest.transport import Transport
from tests.support.guest_process import GuestProcess

MIB = 1024 * 1024


@pytest.fixture
async def files(guest: GuestProcess) -> AsyncIterator[GuestFiles]:
    async with GuestClient(guest.url, None) as client:
        yield client.files


async def pieces(block: bytes, count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield block


async def endless() -> AsyncIterator[bytes]:
    raise AssertionError("what is refused anyway must not be sent")
    yield b""


async def whole(files: GuestFiles, path: str) -> bytes:
    async with files.download(path) as download:
        return b"".join([chunk async for chunk in download.chunks])


async def test_a_file_goes_up_and_down_with_its_facts(files: GuestFiles) -> None:
    block = os.urandom(MIB)
    await files.upload("big/new", pieces(block, 20), size_bytes=20 * MIB, has_parents=True)
    size = await files.upload("a/b", pieces(block, 5), mode=0o640, mtime_ns=1_700_000_000_000_000_007, has_parents=True)
    assert size == 5 * MIB
    async with files.download("a/b") as download:
        assert (download.size_bytes, download.mode, download.mtime_ns) == (5 * MIB, 0o640, 1_700_000_000_000_000_007)
        assert download.modified_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        assert b"".join([chunk async for chunk in download.chunks]) == block * 5


async def test_parts_of_a_file_are_downloaded(files: GuestFiles) -> None:
    await files.upload("f", b"0123456789")
    for start, length, expected in ((2, None, b"23456789"), (0, 3, b"012"), (9, 5, b"9")):
        async with files.download("f", start=start, length=length) as download:
            assert b"".join([chunk async for chunk in download.chunks]) == expected
    with pytest.raises(UsageError):
        async with files.download("f", start=10):
            pass


async def test_leaving_a_download_early_leaves_the_client_usable(guest: GuestProcess, files: GuestFiles) -> None:
    with (guest.workdir / "big").open("wb") as file:
        file.truncate(500 * MIB)
    for _ in range(8):
        async with files.download("big") as download:
            async for _ in download.chunks:
                break
    assert await files.exists("big")


async def test_an_upload_whose_source_fails_leaves_the_old_content(guest: GuestProcess, files: GuestFiles) -> None:
    await files.upload("f", b"old")

    async def failing() -> AsyncIterator[bytes]:
        yield b"n" * MIB
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        await files.upload("f", failing())
    assert await whole(files, "f") == b"old"
    async with asyncio.timeout(10):
        while len(list(guest.workdir.iterdir())) > 1:
            await asyncio.sleep(0.01)


async def test_refusals_are_our_errors_and_name_the_path(guest: GuestProcess, files: GuestFiles) -> None:
    (guest.workdir / "dir").mkdir()
    (guest.workdir / "f").write_bytes(b"x")
    cases: list[tuple[type[SbxError], Awaitable[object]]] = [
        (FileMissing, whole(files, "no such")),
        (FileMissing, files.stat("no such")),
        (Conflict, whole(files, "dir")),
        (Conflict, files.upload("dir", b"x")),
        (Conflict, files.upload("f", b"y", if_sha256="none")),
        (Conflict, files.move("f", "dir")),
        (Conflict, files.remove("dir")),
        (Conflict, files.remove(".", recursive=True)),
        (Conflict, files.make_directory("dir")),
        (UsageError, files.stat("")),
        (QuotaExceeded, files.upload("huge", endless(), size_bytes=10**15)),
        (FileMissing, files.upload("no/such", endless(), size_bytes=10**9)),
        (Conflict, files.upload("f", endless(), size_bytes=10**9, if_sha256="none")),
    ]
    for kind, call in cases:
        with pytest.raises(kind) as caught:
            await call
        assert caught.value.message
    with pytest.raises(FileMissing, match="no such"):
        await files.stat("no such")


async def test_a_source_that_is_not_as_long_as_was_said_leaves_the_old_content(files: GuestFiles) -> None:
    await files.upload("f", b"old", size_bytes=3)
    for size_bytes in (1, 3, 5):
        with pytest.raises(UsageError, match="changed its size"):
            await files.upload("f", pieces(b"xx", 2), size_bytes=size_bytes)
    assert await files.upload("g", pieces(b"xx", 2), size_bytes=4) == 4
    assert await whole(files, "f") == b"old"


async def test_names_from_a_sandbox_cannot_write_to_the_terminal_through_errors(files: GuestFiles) -> None:
    with pytest.raises(FileMissing) as caught:
        await files.stat("\x1b[31mred\x1b]0;title\x07\u202e")
    assert caught.value.message.isprintable()


async def test_operations_do_what_they_say(files: GuestFiles) -> None:
    await files.make_directory("a/b", has_parents=True, mode=0o711)
    await files.upload("a/b/f", b"content")
    await files.copy("a", "c", recursive=True)
    await files.move("c/b/f", "g", overwrite=False)
    assert await files.exists("g") and not await files.exists("c/b/f")
    info = await files.stat("a/b")
    assert (info.kind, info.mode) == ("dir", 0o711)
    await files.remove("a", recursive=True)
    await files.remove("a", missing_ok=True)
    listing = await files.list(".", recursive=True)
    assert [entry.path for entry in listing.entries] == ["c", "c/b", "g"]
    assert not listing.is_truncated


@pytest.mark.long
async def test_a_long_listing_is_cut_where_asked_and_whole_where_not(guest: GuestProcess, files: GuestFiles) -> None:
    for number in range(3_000):
        (guest.workdir / f"{number:04d}").touch()
    listing = await files.list(".", limit=1_234)
    assert (len(listing.entries), listing.is_truncated) == (1_234, True)
    assert len([entry async for entry in files.iter_list(".")]) == 3_000


def make_tree(root: Path) -> None:
    (root / "sub/empty").mkdir(parents=True)
    (root / "sub/file").write_bytes(os.urandom(2 * MIB + 3))
    (root / "sub/link").symlink_to("file")
    (root / os.fsdecode(b"\xff name")).write_bytes(b"odd")
    for number in range(300):
        (root / f"small{number}").write_bytes(b"%d" % number)


def contents(root: Path) -> dict[str, object]:
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.is_dir() or path.read_bytes()
        for path in root.rglob("*")
    }


async def test_a_tree_goes_up_and_comes_down_unchanged(guest: GuestProcess, files: GuestFiles, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make_tree(source)
    target.mkdir()
    up = await files.upload_tree(source, "trees/one", has_parents=True)
    assert (up.files, up.folders, up.links, up.problem_count) == (302, 2, 1, 0)
    assert contents(guest.workdir / "trees/one") == contents(source)
    down = await files.download_tree("trees/one", target)
    assert (down.files, down.size_bytes) == (up.files, up.size_bytes)
    assert contents(target) == contents(source)


async def test_a_tree_says_what_it_could_not_bring(guest: GuestProcess, files: GuestFiles, tmp_path: Path) -> None:
    (guest.workdir / "t").mkdir()
    (guest.workdir / "t/outside").symlink_to("/etc")
    os.mkfifo(guest.workdir / "t/fifo\x1b[2J")
    target = tmp_path / "target"
    target.mkdir()
    report = await files.download_tree("t", target)
    assert {problem.path: problem.code for problem in report.problems} == {
        "outside": "unsafe_link",
        "fifo": "special_file",
    }


async def test_a_tree_larger_than_allowed_or_without_a_place_to_go_is_refused(
    guest: GuestProcess, files: GuestFiles, tmp_path: Path
) -> None:
    (guest.workdir / "big").write_bytes(bytes(3 * MIB))
    (tmp_path / "target").mkdir()
    with pytest.raises(UsageError, match="more than 1000 bytes"):
        await files.download_tree(".", tmp_path / "target", max_bytes=1_000)
    assert list((tmp_path / "target").iterdir()) == []
    with pytest.raises(UsageError, match="nowhere"):
        await files.download_tree(".", tmp_path / "nowhere")
    with pytest.raises(FileMissing):
        await files.upload_tree(tmp_path / "nowhere", "x")


App = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def stranger_url(answer: bytes) -> AsyncIterator[str]:
    """The address of a server that answers every request with the same bytes, and closes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def stranger(answer: bytes) -> AsyncIterator[GuestFiles]:
    """Files of such a server."""
    async with stranger_url(answer) as url, Transport(url, None) as transport:
        yield GuestFiles(transport)


def reply(body: bytes, *, status: str = "200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n%s\r\n%s" % (status.encode(), len(body), headers, body)


ENTRY = b'{"path":"a","kind":"file","size_bytes":1,"mode":420,"mtime_ns":1}\n'
NONSENSE = {
    "no json": reply(b"<html>"),
    "a list": reply(b"[]"),
    "deep json": reply(b"[" * 100_000),
    "a negative size": reply(b'{"path":"a","kind":"file","size_bytes":-1,"mode":1,"mtime_ns":1}'),
    "a mode of text": reply(b'{"path":"a","kind":"file","size_bytes":1,"mode":"x","mtime_ns":1}'),
    "no kind": reply(b'{"path":"a"}'),
    "cut off": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
    "nothing": b"",
    "no http": b"SSH-2.0-x\r\n",
    "bad gateway": reply(b"upstream", status="502 Bad Gateway"),
}


@pytest.mark.parametrize("what", NONSENSE)
async def test_an_answer_that_makes_no_sense_is_an_unreachable_guest(what: str) -> None:
    async with stranger(NONSENSE[what]) as files:
        with pytest.raises(GuestUnreachable):
            await files.stat("a")


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (MAX_ANSWER_BYTES + 1)
    async with stranger(endless) as files:
        with pytest.raises(GuestUnreachable, match="longer than"):
            await files.stat("a")
    async with stranger_url(endless) as url, GuestClient(url, None) as client:
        with pytest.raises(GuestUnreachable, match="longer than"):
            await client.transport.call("GET", "/v2/hello", doing="asking")


async def test_a_listing_longer_than_asked_for_is_cut_here() -> None:
    async with stranger(reply(ENTRY * 50)) as files:
        listing = await files.list("a", limit=3)
    assert (len(listing.entries), listing.is_truncated) == (3, True)


@pytest.mark.parametrize("body", [ENTRY, ENTRY[:-1], b"x" * 1_000_000, ENTRY + b'{"end":false}\n'])
async def test_a_listing_without_its_end_is_a_cut_and_not_a_short_listing(body: bytes) -> None:
    async with stranger(reply(body)) as files:
        with pytest.raises(GuestUnreachable):
            await files.list(".")


async def test_times_out_of_any_calendar_are_still_shown() -> None:
    for mtime_ns in (10**30, -(10**30)):
        body = b'{"path":"a","kind":"socket","size_bytes":1,"mode":65535,"mtime_ns":%d}' % mtime_ns
        async with stranger(reply(body)) as files:
            info = await files.stat("a")
        assert (info.kind, info.mode, info.modified_at.tzinfo) == ("other", 0o7777, UTC)


async def test_a_file_without_its_facts_and_a_refusal_by_a_proxy_are_errors() -> None:
    async with stranger(reply(b"content")) as files:
        with pytest.raises(GuestUnreachable):
            await whole(files, "a")
    async with stranger(reply(b"Forbidden", status="403 Forbidden")) as files:
        with pytest.raises(AccessDenied):
            await whole(files, "a")


async def test_a_full_disk_is_a_quota_with_a_hint() -> None:
    refusal = reply(b'{"error":{"code":"disk_full","message":"/work/a: no space"}}', status="507 Insufficient Storage")
    async with stranger(refusal) as files:
        with pytest.raises(QuotaExceeded) as caught:
            await files.upload("a", b"x")
    assert caught.value.hint and caught.value.details["guest_code"] == "disk_full"


async def test_a_digest_lets_only_the_one_who_saw_the_content_replace_it(files: GuestFiles) -> None:
    await files.upload("f", b"one", if_sha256="none")
    await files.upload("f", b"two", if_sha256=hashlib.sha256(b"one").hexdigest())
    with pytest.raises(Conflict):
        await files.upload("f", b"three", if_sha256=hashlib.sha256(b"one").hexdigest())
    assert await whole(files, "f") == b"two"
