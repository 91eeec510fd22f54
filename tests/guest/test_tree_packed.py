"""What is packed on a long way: the same arrives, cuts cost as little, and a stream that lies is refused."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbxguest.tree import BadRecord, Outcome, Source
from sbxguest.tree.codec import CODEC_HEADER, ZEROS, ZEROS_ZSTD, ZSTD, Packer, counted_zeros, opener_of
from sbxguest.tree.frames import data_frames
from sbxguest.tree.zstd import zstd
from sbxtui.core.errors import GuestUnreachable, UsageError
from sbxtui.guest.client import GuestClient
from sbxtui.guest.tree import GuestTree, Wanted
from sbxtui.guest.treebodies import Step, packed
from tests.support.guest_process import GuestProcess
from tests.support.relay import running_relay
from tests.support.strange_tree import HELLO, strange_tree
from tests.support.tree_side import mkdir, outcomes, put, put_known, sha, stream_of
from tests.support.tree_upload import in_pieces, resumed_upload

MIB = 1024 * 1024
LARGE = os.urandom(MIB) + bytes(2 * MIB)


@pytest.fixture
async def client(guest: GuestProcess) -> AsyncIterator[GuestClient]:
    async with GuestClient(guest.url, None) as opened:
        yield opened


@pytest.fixture
async def far(client: GuestClient) -> GuestTree:
    return GuestTree(client.transport, "", client.hello, is_far=True)


@settings(deadline=None)
@given(
    st.sampled_from([ZSTD, ZEROS, ZEROS_ZSTD]),
    st.lists(st.binary(max_size=3000) | st.sampled_from([1, 5_000]).map(bytes), max_size=10),
    st.integers(1, 500),
    st.integers(0, 10),
)
def test_what_is_packed_comes_out_again_however_it_is_cut(
    codec: str, pieces: list[bytes], step: int, easy: int
) -> None:
    packer, opener = Packer(), opener_of(codec)
    told = pieces if codec == ZSTD else list(map(counted_zeros, pieces))
    if codec != ZEROS:
        begun = [packer.feed(piece) for piece in told[:easy]]
        told = [*begun, packer.try_harder(), packer.try_harder(), *map(packer.feed, told[easy:]), packer.end()]
    data = b"".join(told)
    chunks = [data[start : start + step] for start in range(0, len(data), step)]
    assert opener is not None and b"".join(opener.open(chunks)) == b"".join(pieces)


def test_very_many_zeros_come_in_pieces_that_are_never_large() -> None:
    opener = opener_of(ZEROS)
    assert opener is not None
    assert list(opener.open([counted_zeros(bytes(2 * MIB + 1))])) == [bytes(MIB), bytes(MIB), b"\0"]


async def test_what_goes_slowly_is_packed_closer() -> None:
    pieces, sent = [random.Random(1).randbytes(MIB // 4).hex().encode()] * 6, b""
    async with aclosing(packed(in_pieces(b"".join(pieces), MIB // 2), ZSTD)) as told:
        async for one in told:
            sent += one
            await asyncio.sleep(0.2)
    first = zstd.ZstdDecompressor()
    begun = first.decompress(sent)
    assert first.eof and first.unused_data
    assert begun + zstd.decompress(first.unused_data) == b"".join(pieces)


async def test_a_packed_batch_arrives_whole(guest: GuestProcess, far: GuestTree) -> None:
    small = [put(b"d/%d" % number, b"line\n" * number) for number in range(50)]
    steps = [Step(*mkdir(b"d")), *(Step(*one) for one in small), Step(put(b"large", LARGE)[0], in_pieces(LARGE))]
    assert outcomes(await far.batch("one", steps)) == [Outcome.DONE] * 52
    assert (guest.workdir / "large").read_bytes() == LARGE
    assert (guest.workdir / "d/49").read_bytes() == b"line\n" * 49


async def test_what_a_sandbox_far_away_tells_comes_packed(guest: GuestProcess) -> None:
    down_bytes: list[int] = []
    for is_far in (False, True):
        async with running_relay(guest.port) as relay, GuestClient(relay.url, None) as client_there:
            tree = GuestTree(client_there.transport, "", client_there.hello, is_far=is_far)
            steps = [Step(*mkdir(b"%d of %d" % (number, is_far))) for number in range(500)]
            assert outcomes(await tree.batch(f"b{is_far}", steps)) == [Outcome.DONE] * 500
            assert len((await tree.scan([b""], is_deep=False)).records) == 500 * (1 + is_far)
            down_bytes.append(relay.down_bytes)
    near_bytes, far_bytes = down_bytes
    # Though there is twice as much to list by then.
    assert far_bytes < near_bytes / 2


async def test_a_packed_upload_goes_on_where_it_was_cut(guest: GuestProcess, far: GuestTree) -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield LARGE[: 2 * MIB]
        raise OSError("the source broke")

    digest = sha(LARGE)
    with pytest.raises(OSError, match="the source broke"):
        await far.upload_blob(digest, cut(), offset=0, size_bytes=len(LARGE))
    assert await resumed_upload(far, LARGE) > 0
    assert outcomes(await far.batch("blob", [Step(*put_known(b"f", LARGE, Source.BLOB))])) == [Outcome.DONE]
    assert (guest.workdir / "f").read_bytes() == LARGE


@pytest.mark.parametrize("is_far", [True, False])
async def test_a_sparse_file_is_sent_as_little_and_stays_sparse(guest: GuestProcess, is_far: bool) -> None:
    content = bytes(64 * MIB) + b"end"
    async with running_relay(guest.port) as relay, GuestClient(relay.url, None) as client_there:
        tree = GuestTree(client_there.transport, "", client_there.hello, is_far=is_far)
        done = await tree.upload_blob(sha(content), in_pieces(content, MIB), offset=0, size_bytes=len(content))
        assert done.is_complete
        assert outcomes(await tree.batch("b", [Step(*put_known(b"f", content, Source.BLOB))])) == [Outcome.DONE]
        assert relay.up_bytes <= MIB
    assert (guest.workdir / "f").read_bytes() == content
    assert (guest.workdir / "f").stat().st_blocks * 512 <= MIB


async def test_contents_come_back_packed_from_far_away(guest: GuestProcess) -> None:
    contents = {b"text": b"line\n" * 100_000, b"noise": LARGE, b"empty": b""}
    for name, content in contents.items():
        (guest.workdir / os.fsdecode(name)).write_bytes(content)
    async with running_relay(guest.port) as relay, GuestClient(relay.url, None) as client_there:
        tree = GuestTree(client_there.transport, "", client_there.hello, is_far=True)
        found, held = [], bytearray()
        async for piece in tree.read([Wanted(name, sha(content)) for name, content in contents.items()]):
            if isinstance(piece, bytes):
                held += piece
            else:
                found.append((bytes(held), piece.outcome))
                held.clear()
        # The noise has to come as it is.
        assert relay.down_bytes < MIB + MIB // 4
    assert found == [(content, Outcome.DONE) for content in contents.values()]


@pytest.mark.parametrize(
    ("codec", "body"),
    [
        ("zip", b""),
        ("zstd", b"nonsense"),
        ("zstd", zstd.compress(stream_of([put(b"f", b"x")]))[:-20]),
        ("zstd", zstd.compress(stream_of([put(b"f", b"x")])) + b"more"),
        # It wants more memory than we give.
        ("zstd", zstd.compress(os.urandom(16 * MIB), options={zstd.CompressionParameter.window_log: 24})),
        # A thousand times as much as comes over the wire.
        ("zstd", zstd.compress(bytes(200 * MIB))),
    ],
    ids=["unknown", "nonsense", "cut", "too much", "window", "bomb"],
)
async def test_a_packed_stream_that_lies_is_refused(
    guest: GuestProcess, client: GuestClient, codec: str, body: bytes
) -> None:
    headers = {"x-sbx-boot": (await client.hello()).boot_id, CODEC_HEADER: codec}
    with pytest.raises(UsageError):
        await client.transport.call(
            "POST", "/v2/tree/batch/x", doing="asking", query={"path": "."}, headers=headers, content=body
        )
    assert os.listdir(guest.workdir) == []


def test_what_comes_behind_a_packed_stream_is_an_error() -> None:
    opener = opener_of(ZSTD)
    with pytest.raises(BadRecord):
        list(opener.open([zstd.compress(b"x"), b"more"]) if opener is not None else ())


def test_very_many_frames_in_a_packed_stream_are_an_error() -> None:
    opener = opener_of(ZSTD)
    with pytest.raises(BadRecord, match="64 frames"):
        list(opener.open([zstd.compress(b"") * 100]) if opener is not None else ())


def answers(codec: str, body: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A guest that answers a request for contents so."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.splitlines()[1:] if line)
        await reader.readexactly(int(fields.get(b"content-length", b"0")))
        packed_by, sent = ("", HELLO) if b"/tree/hello" in head else (f"{CODEC_HEADER}: {codec}\r\n", body)
        answer = f"HTTP/1.1 200 OK\r\nconnection: close\r\n{packed_by}content-length: {len(sent)}\r\n\r\n"
        writer.write(answer.encode() + sent)
        await writer.drain()
        writer.close()

    return handle


async def test_a_little_that_unpacks_to_very_much_is_never_held_whole() -> None:
    frames = b"".join(data_frames(0, bytes(16 * MIB)))
    async with strange_tree(answers(ZSTD, zstd.compress(frames) + b"nonsense"), is_far=True) as tree:
        got = 0
        with pytest.raises(GuestUnreachable):
            async for piece in tree.read([Wanted(b"f")]):
                got += len(piece) if isinstance(piece, bytes) else 0
        # All that was sound came before the rest was looked at.
        assert got == 16 * MIB


@pytest.mark.parametrize(("codec", "is_far"), [(ZSTD, False), (ZEROS, True)])
async def test_contents_packed_in_a_way_nobody_asked_for_are_refused(codec: str, is_far: bool) -> None:
    async with strange_tree(answers(codec, b"\xff\xff\xff\xff"), is_far=is_far) as tree:
        with pytest.raises(GuestUnreachable, match="nobody asked for"):
            await anext(tree.read([Wanted(b"f")]))
