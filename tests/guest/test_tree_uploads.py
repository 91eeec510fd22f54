"""Large contents that go up by themselves to a real guest, through the host's client."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import pytest

from sbxguest.tree import Outcome, Source
from sbxguest.tree.entry import DIGEST_NAME
from sbxtui.core.errors import Conflict, GuestUnreachable, Unsupported
from sbxtui.guest.client import GuestClient
from sbxtui.guest.tree import GuestTree
from sbxtui.guest.treebodies import Step
from sbxtui.guest.treewire import BlobState
from tests.support.guest_process import GuestProcess
from tests.support.strange_tree import HELLO, strange_tree
from tests.support.tree_side import outcomes, put_known, sha
from tests.support.tree_upload import in_pieces, resumed_upload

MIB = 1024 * 1024
LARGE = os.urandom(3 * MIB)


@pytest.fixture
async def tree(guest: GuestProcess) -> AsyncIterator[GuestTree]:
    async with GuestClient(guest.url, None) as client:
        yield client.tree()


async def test_a_large_content_goes_up_by_itself_and_on_after_a_cut(guest: GuestProcess, tree: GuestTree) -> None:
    digest = sha(LARGE)

    async def cut() -> AsyncIterator[bytes]:
        yield LARGE[:MIB]
        yield LARGE[MIB : 2 * MIB]
        raise OSError("the source broke")

    assert await tree.blob(digest) == BlobState(0, False)
    with pytest.raises(OSError, match="the source broke"):
        await tree.upload_blob(digest, cut(), offset=0, size_bytes=len(LARGE))
    assert await resumed_upload(tree, LARGE) > 0
    with pytest.raises(Conflict) as caught:
        await tree.upload_blob(digest, in_pieces(LARGE), offset=1, size_bytes=len(LARGE))
    assert caught.value.details["guest_code"] == "bad_offset"
    assert await tree.blob(digest) == BlobState(len(LARGE), True)
    assert outcomes(await tree.batch("blob", [Step(*put_known(b"f", LARGE, Source.BLOB))])) == [Outcome.DONE]
    assert (guest.workdir / "f").read_bytes() == LARGE


async def test_a_content_whose_digest_nobody_knows_yet_is_named_by_the_guest(tree: GuestTree) -> None:
    name = sha(b"made up")

    async def cut() -> AsyncIterator[bytes]:
        yield LARGE[:MIB]
        raise OSError("the source broke")

    assert (await tree.hello()).names_contents
    with pytest.raises(OSError, match="the source broke"):
        await tree.upload_blob(name, cut(), offset=0, size_bytes=len(LARGE), is_provisional=True)
    assert await resumed_upload(tree, LARGE, name=name) <= MIB
    assert await tree.blob(sha(LARGE)) == BlobState(len(LARGE), True)
    assert await tree.blob(name) == BlobState(len(LARGE), True)
    assert outcomes(await tree.batch("blob", [Step(*put_known(b"f", LARGE, Source.BLOB))])) == [Outcome.DONE]
    assert await tree.blob(name) == await tree.blob(sha(LARGE)) == BlobState(0, False)


async def test_a_large_content_that_is_another_one_is_refused(tree: GuestTree) -> None:
    with pytest.raises(Conflict) as caught:
        await tree.upload_blob(sha(b"other"), in_pieces(LARGE), offset=0, size_bytes=len(LARGE))
    assert caught.value.details["guest_code"] == "wrong_content"
    assert await tree.blob(sha(b"other")) == BlobState(0, False)


async def test_a_content_that_ends_early_is_a_cut_and_can_be_thrown_away(tree: GuestTree) -> None:
    digest = sha(LARGE)
    done = await tree.upload_blob(digest, in_pieces(LARGE[:-1], MIB), offset=0, size_bytes=len(LARGE), is_sparse=False)
    assert not done.is_complete
    # Whatever the sender thinks how much of it is there.
    await tree.drop_blob(digest, 0)
    assert await tree.blob(digest) == BlobState(0, False)


async def test_a_guest_that_names_contents_by_another_digest_is_refused_in_words() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = HELLO.replace(DIGEST_NAME.encode(), b"sha256")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async with strange_tree(handle) as tree:
        with pytest.raises(Unsupported, match=f"by sha256, and not by {DIGEST_NAME}"):
            await tree.hello()


@pytest.mark.parametrize(
    "said", [b"", b"-1", b"1.5", b"9" * 19, b"9" * 10_000], ids=["nothing", "negative", "fraction", "large", "endless"]
)
async def test_an_upload_of_a_size_that_is_none_is_a_garbled_answer(said: bytes) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                body, fields = (b"", b"x-sbx-offset: " + said) if head.startswith(b"HEAD") else (HELLO, b"x: y")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%b\r\n\r\n%b" % (len(body), fields, body))
        writer.close()

    async with strange_tree(handle) as tree:
        with pytest.raises(GuestUnreachable, match="size"):
            await tree.blob(sha(b"x"))
