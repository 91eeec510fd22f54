"""A folder of a real guest as one end of a sync, through the host's client."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from sbxguest.tree import Entry, Kind, Note, Op, OpKind, Outcome, Result, State
from sbxguest.tree.entry import new_digest
from sbxguest.tree.frames import result_writer
from sbxtui.core.errors import Conflict, FileMissing, GuestUnreachable, SbxError, UsageError
from sbxtui.guest.client import GuestClient
from sbxtui.guest.tree import GuestTree, Wanted
from sbxtui.guest.treebodies import Step
from tests.support.guest_process import GuestProcess
from tests.support.strange_tree import HELLO, strange_tree
from tests.support.tree_side import delete, file, link, mkdir, outcomes, put, sha
from tests.support.tree_upload import in_pieces

MIB = 1024 * 1024
DONE, MISMATCH = Outcome.DONE, Outcome.MISMATCH
LARGE = os.urandom(3 * MIB)
MANY = 4_000


@pytest.fixture
async def client(guest: GuestProcess) -> AsyncIterator[GuestClient]:
    async with GuestClient(guest.url, None) as opened:
        yield opened


@pytest.fixture
async def tree(client: GuestClient) -> GuestTree:
    return client.tree()


def steps(*given: tuple[Op, bytes]) -> list[Step]:
    return [Step(op, content if len(content) <= 65536 else in_pieces(content)) for op, content in given]


async def listed(tree: GuestTree, *paths: bytes) -> dict[bytes, State | str]:
    manifest = await tree.scan(paths or (b"",))
    return {one.path: one.code if isinstance(one, Note) else one.state for one in manifest.records}


async def contents(tree: GuestTree, *files: Wanted) -> list[tuple[bytes, Result]]:
    found: list[tuple[bytes, Result]] = []
    held = bytearray()
    async with aclosing(tree.read(files)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Result):
                found.append((bytes(held), piece))
                held.clear()
            else:
                held += piece
    return found


async def test_a_folder_says_which_it_is(guest: GuestProcess, tree: GuestTree, client: GuestClient) -> None:
    first, again = await tree.hello(), await tree.hello()
    assert (first.guest_id, first.epoch, first.root) == (again.guest_id, again.epoch, again.root)
    assert first.epoch == (await client.hello()).boot_id and first.guest_id
    assert first.codecs
    (guest.workdir / "sub").mkdir()
    other = await client.tree("sub").hello()
    assert other.guest_id != first.guest_id and other.root != first.root
    with pytest.raises(FileMissing):
        await client.tree("nothing").hello()


async def test_a_batch_goes_up_and_the_listing_shows_it(guest: GuestProcess, tree: GuestTree) -> None:
    results = await tree.batch(
        "one", steps(mkdir(b"d"), put(b"d/small", b"x"), put(b"d/large", LARGE), link(b"l\xff\n", b"d/small"))
    )
    assert outcomes(results) == [DONE] * 4
    assert (guest.workdir / "d/large").read_bytes() == LARGE
    found = await listed(tree)
    assert set(found) == {b"d", b"d/small", b"d/large", b"l\xff\n"}
    for seq, path in ((1, b"d/small"), (2, b"d/large")):
        state, result = found[path], results[seq]
        assert isinstance(state, State) and state == result.state and result.state is not None
        assert state.stamp == result.state.stamp
    assert outcomes(await tree.batch("two", steps(put(b"d/small", b"y"), delete(b"d/large", file(LARGE))))) == [
        MISMATCH,
        DONE,
    ]
    assert sorted(os.listdir(guest.workdir / "d")) == ["small"]


async def test_what_is_left_out_and_what_cannot_be_told_are_notes(guest: GuestProcess, tree: GuestTree) -> None:
    (guest.workdir / "node_modules/x").mkdir(parents=True)
    (guest.workdir / "src").mkdir()
    (guest.workdir / "src/o.pyc").touch()
    os.mkfifo(guest.workdir / "fifo")
    manifest = await tree.scan(ignore={b"": [b"node_modules/\n"], b"src": [b"*.py[co]\n"]})
    notes = {one.path: one.code for one in manifest.records if isinstance(one, Note)}
    assert notes == {b"node_modules": "ignored", b"src/o.pyc": "ignored", b"fifo": "special_file"}
    shallow = await tree.scan([b"src"], has_digests=False, is_deep=False)
    assert [one.path for one in shallow.records] == [b"src"]


async def test_contents_come_down_with_what_became_of_them(guest: GuestProcess, tree: GuestTree) -> None:
    (guest.workdir / "large").write_bytes(LARGE)
    (guest.workdir / "small").write_bytes(b"x")
    (guest.workdir / "empty").touch()
    (guest.workdir / "link").symlink_to("small")
    found = await contents(
        tree,
        Wanted(b"large", sha(LARGE)),
        Wanted(b"small", sha(b"other")),
        Wanted(b"empty"),
        Wanted(b"gone"),
        Wanted(b"link"),
    )
    assert [(len(content), result.code or result.outcome) for content, result in found] == [
        (len(LARGE), DONE),
        (1, MISMATCH),
        (0, DONE),
        (0, "file_not_found"),
        (0, "not_a_directory"),
    ]
    assert found[0][0] == LARGE and found[0][1].state is not None
    assert found[0][1].state == (await listed(tree))[b"large"]


async def test_changes_are_told_and_those_of_batches_are_not(guest: GuestProcess, tree: GuestTree) -> None:
    (guest.workdir / "node_modules").mkdir()
    ignore = {b"": [b"node_modules/\n*.tmp\n"]}
    assert (await tree.scan(ignore=ignore, has_cursor=False)).cursor == (await tree.hello()).feed == ""
    cursor = (await tree.scan(ignore=ignore)).cursor
    await tree.batch("one", steps(mkdir(b"mine"), put(b"mine/f", b"x"), put(b"g", b"g")))
    await tree.batch("two", steps(put(b"g", b"h", file(b"g")), delete(b"mine/f", file(b"x"))))
    quiet = await tree.changes(cursor, wait_s=0)
    assert (quiet.paths, quiet.must_rescan) == ((), False)
    waiting = asyncio.create_task(tree.changes(quiet.cursor, wait_s=20))
    (guest.workdir / "node_modules/x").touch()
    (guest.workdir / "x.tmp").touch()
    (guest.workdir / "theirs\n").write_bytes(b"1")
    told = await waiting
    assert (told.paths, told.must_rescan) == ((b"theirs\n",), False)
    (guest.workdir / "g").write_bytes(b"edited")
    (guest.workdir / "mine/new/deep").mkdir(parents=True)
    (guest.workdir / "mine/new/deep/f").touch()
    # Its cursor is behind all that was done before.
    await tree.scan(ignore=ignore)
    later = await tree.changes(told.cursor, wait_s=0)
    assert {b"g", b"mine/new"} <= set(later.paths)
    assert (await tree.changes(later.cursor, wait_s=0)).paths == ()


async def test_a_cursor_of_another_time_asks_for_a_new_listing(tree: GuestTree, guest: GuestProcess) -> None:
    cursor = (await tree.scan()).cursor
    for strange in ("", "x", "0-0", cursor + "9", "-1"):
        assert (await tree.changes(strange, wait_s=0)).must_rescan
    assert not (await tree.changes(cursor, wait_s=0)).must_rescan
    await guest.kill_server()
    assert (await tree.changes(cursor, wait_s=0)).must_rescan


async def test_another_boot_or_folder_is_refused_and_nothing_is_done(
    guest: GuestProcess, client: GuestClient, tree: GuestTree
) -> None:
    (guest.workdir / "sub").mkdir()
    sub = client.tree("sub")
    hello = await sub.hello()
    (guest.workdir / "sub").rename(guest.workdir / "moved")
    with pytest.raises(FileMissing):
        await sub.scan()
    (guest.workdir / "sub").mkdir()
    with pytest.raises(Conflict) as caught:
        await sub.batch("one", steps(put(b"f", b"x")))
    assert caught.value.details["guest_code"] == "root_changed"
    other = await sub.hello()
    assert other.root != hello.root and other.guest_id == hello.guest_id
    assert outcomes(await sub.batch("one", steps(put(b"f", b"x")))) == [DONE]
    await tree.hello()
    for method, path in (("POST", "scan"), ("POST", "batch/x"), ("PUT", "blob/" + "0" * 64), ("GET", "changes")):
        with pytest.raises(Conflict) as caught:
            await client.transport.call(
                method,
                f"/v2/tree/{path}",
                doing="asking",
                query={"path": "."},
                headers={"x-sbx-boot": "another"},
                content=b"{}",
            )
        assert caught.value.details["guest_code"] == "boot_changed"
    assert sorted(os.listdir(guest.workdir)) == ["moved", "sub"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "scan", b'{"paths":["../x"]}'),
        ("POST", "scan", b'{"paths":"x"}'),
        ("POST", "scan", b'{"paths":["\\ud800"]}'),
        ("POST", "scan", b'{"paths":[],"ignore":[]}'),
        ("POST", "scan", b'{"paths":[],"ignore":{"":"x"}}'),
        ("POST", "batch/../x", b""),
        ("POST", "batch/a%2Fb", b""),
        ("POST", "batch/" + "x" * 65, b""),
        ("POST", "batch/x", b""),
        ("POST", "batch/x", b"nonsense" * 100),
        ("PUT", "blob/xyz", b""),
        ("PUT", "blob/" + "0" * 63, b""),
        ("POST", "read", b'{"files":[{"path":"/etc/passwd"}]}'),
        ("POST", "read", b'{"files":[{"path":"a/../../x"}]}'),
        ("POST", "read", b'{"files":[{}]}'),
        ("POST", "read", b'{"files":[{"path":"x","digest":"zz"}]}'),
    ],
)
async def test_requests_that_make_no_sense_are_refused(
    guest: GuestProcess, client: GuestClient, method: str, path: str, body: bytes
) -> None:
    headers = {"x-sbx-boot": (await client.hello()).boot_id}
    with pytest.raises((UsageError, Conflict, FileMissing)):
        await client.transport.call(
            method, f"/v2/tree/{path}", doing="asking", query={"path": "."}, headers=headers, content=body
        )
    assert os.listdir(guest.workdir) == []


async def test_a_change_that_does_not_say_which_boot_it_is_for_is_refused(client: GuestClient) -> None:
    with pytest.raises(UsageError, match="which boot"):
        await client.transport.call("POST", "/v2/tree/batch/x", doing="asking", query={"path": "."}, content=b"")


async def test_a_server_that_is_killed_in_the_middle_finishes_when_the_batch_comes_again(
    guest: GuestProcess, tree: GuestTree
) -> None:
    await tree.batch("before", steps(*(put(b"old%d" % number, b"old") for number in range(200))))
    batch = [
        *(put(b"new%d" % number, b"%d" % number) for number in range(MANY)),
        *(delete(b"old%d" % number, file(b"old")) for number in range(200)),
    ]
    sending = asyncio.create_task(tree.batch("cut", steps(*batch)))
    async with asyncio.timeout(60):
        while not (guest.workdir / "new100").exists():
            await asyncio.sleep(0)
    await guest.kill_server()
    with pytest.raises(GuestUnreachable):
        await sending
    left = len(os.listdir(guest.workdir))
    (guest.workdir / "new7").write_bytes(b"edited by the agent")
    again = await tree.batch("cut", steps(*batch))
    assert outcomes(again) == [DONE] * len(batch)
    assert left < len(batch)
    assert (guest.workdir / "new7").read_bytes() == b"edited by the agent"
    assert len(os.listdir(guest.workdir)) == MANY


async def test_a_connection_that_is_cut_in_the_middle_leaves_nothing_behind(
    guest: GuestProcess, tree: GuestTree, tmp_path: Path
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield LARGE[:MIB]
        raise OSError("the source broke")

    op, _ = put(b"large", LARGE)
    await tree.hello()
    for _ in range(3):
        with pytest.raises(OSError, match="the source broke"):
            await tree.batch("cut", [Step(put(b"f", b"x")[0], b"x"), Step(op, broken())])
    async with asyncio.timeout(20):
        while list(guest.workdir.parent.glob(".sbx-stage-*/incoming/*")):
            await asyncio.sleep(0.02)
    assert os.listdir(guest.workdir) == []


async def test_the_same_batch_twice_at_a_time_is_made_once(guest: GuestProcess, tree: GuestTree) -> None:
    (guest.workdir / "f").write_bytes(b"old")
    batch = [delete(b"f", file(b"old")), put(b"f", b"new")]
    both = await asyncio.gather(*(tree.batch("twice", steps(*batch)) for _ in range(4)))
    assert [outcomes(one) for one in both] == [[DONE, DONE]] * 4
    assert (guest.workdir / "f").read_bytes() == b"new"


async def test_a_folder_of_many_entries_is_listed_whole(guest: GuestProcess, tree: GuestTree) -> None:
    for number in range(5_000):
        os.close(os.open(guest.workdir / str(number), os.O_CREAT | os.O_WRONLY))
    manifest = await tree.scan(has_digests=False)
    assert len(manifest.records) == 5_000
    assert all(isinstance(one, Entry) and one.state.kind is Kind.FILE for one in manifest.records)


async def test_the_server_answers_others_while_it_reads_much(guest: GuestProcess, client: GuestClient) -> None:
    with (guest.workdir / "big").open("wb") as big:
        big.truncate(400 * MIB)
    tree = client.tree()
    await tree.hello()
    scanning = asyncio.create_task(tree.scan())
    answered = 0
    while not scanning.done():
        await client.hello()
        answered += 1
        await asyncio.sleep(0.02)
    [entry] = (await scanning).records
    assert isinstance(entry, Entry) and answered > 2
    zeros = new_digest()
    for _ in range(400):
        zeros.update(bytes(MIB))
    assert entry.state.content == zeros.digest()


async def test_a_goal_without_expectation_never_replaces(guest: GuestProcess, tree: GuestTree) -> None:
    (guest.workdir / "f").write_bytes(b"theirs")
    op = Op(OpKind.PUT, b"f", State(Kind.FILE, sha(b"mine")), None, 4)
    [result] = await tree.batch("one", [Step(op, b"mine")])
    assert result.outcome is MISMATCH and result.state is not None and result.state.content == sha(b"theirs")


async def test_a_listing_without_an_end_is_not_held_in_memory(
    guest: GuestProcess, tree: GuestTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        (guest.workdir / f"f{number}").write_bytes(b"x")
    assert len(await listed(tree)) == 4
    monkeypatch.setattr("sbxtui.guest.tree.MAX_RECORDS", 3)
    with pytest.raises(SbxError, match="more than a folder can be synced with"):
        await tree.scan()


async def test_a_guest_whose_results_have_no_end_is_given_up() -> None:
    writer_of = result_writer()
    results = writer_of.add(Result(0, Outcome.DONE)) + writer_of.flush()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(OSError):
            if head.startswith(b"GET"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(HELLO), HELLO))
                head = await reader.readuntil(b"0\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not writer.is_closing():
                writer.write(results)
                await writer.drain()
        writer.close()

    async with strange_tree(handle) as tree:
        with pytest.raises(GuestUnreachable):
            await tree.batch("endless", steps(put(b"f", b"x")))
