"""A folder of a sandbox as one end of a sync: what stands in it, changes to it, and what changed there.

Paths are bytes relative to that folder. Nothing is decided here: operations carry what they expect, and come back with
what became of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sbxguest import wire
from sbxguest.tree import Note, Record, Result
from sbxguest.tree.codec import (
    ACCEPT_HEADER,
    CODEC_HEADER,
    ZEROS,
    ZEROS_ZSTD,
    ZSTD,
    opener_of,
)
from sbxguest.tree.entry import to_text
from sbxguest.tree.frames import ContentReader, manifest_reader, result_reader
from sbxtui.core.errors import Conflict
from sbxtui.guest import filewire
from sbxtui.guest.faults import garbled, translated, whole_body
from sbxtui.guest.http1 import Answer, Body, Patience
from sbxtui.guest.transport import Transport, json_body
from sbxtui.guest.treebodies import Step, batch_body, each, nothing, packed
from sbxtui.guest.treewire import BlobState, Changes, TreeHello, changes_of, fed, hello_of, unpacked

# The guest beats every 10 s while it works: after three of them are lost, so is the connection.
_STALL_S = 35.0
_PATIENCE = Patience(answer_s=_STALL_S, send_s=_STALL_S)
# A guest from which an answer takes that long is not on this machine, and the way to it slower than packing.
_FAR_S = 0.01
MAX_WAIT_S = wire.MAX_WAIT_S
# What a listing may have: the guest may send without end, and all of it is held.
MAX_RECORDS = 2_000_000
MAX_LISTING_BYTES = 1024**3
# Of a size in a header.
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete listing, a folder before what is in it.

    `cursor` is where the change feed was before it was made; empty if that was not asked for.
    """

    records: tuple[Record, ...]
    cursor: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file to read, and the digest it must have; empty for whatever it has."""

    path: bytes
    digest: bytes = b""


class GuestTree:
    """One folder of a sandbox. All but `hello` is about the boot and the folder that `hello` last saw.

    Every method raises `Conflict` when the sandbox was started anew (`details["guest_code"]` is `boot_changed`) or
    another folder stands at the path (`root_changed`), `FileMissing` when none does, and `GuestUnreachable` when the
    guest does not answer or is cut off. All of it may be asked again.

    Args:
        transport: To the guest; closed by its owner.
        path: The folder, absolute or relative to the workdir; empty for that.
        check_guest: Raises `Unsupported` for a guest that knows no trees.
        is_far: Whether sending takes longer than packing; None finds out by how soon the guest answers.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        check_guest: Callable[[], Awaitable[object]],
        *,
        is_far: bool | None = None,
    ) -> None:
        self._transport = transport
        self._path = path or "."
        self._check_guest = check_guest
        self._seen: TreeHello | None = None
        self._is_far = is_far
        self._distance_s = float("inf")

    async def hello(self) -> TreeHello:
        """What the folder is now; from here on, this is the folder that is meant."""
        await self._check_guest()
        is_first = self._seen is None
        self._seen = await self._asked()
        if is_first and self._is_far is None and self._is_far_away():
            # Opening a folder takes the guest a while; only the next answer tells how far it is.
            self._seen = await self._asked()
        return self._seen

    async def _asked(self) -> TreeHello:
        address = filewire.url("/v2/tree/hello", self._path)
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        said = await self._transport.call("GET", address, doing="asking for the folder")
        self._distance_s = min(self._distance_s, loop.time() - asked_s)
        return hello_of(said)

    async def scan(
        self,
        paths: Sequence[bytes] = (b"",),
        *,
        has_digests: bool = True,
        is_deep: bool = True,
        has_cursor: bool = True,
        ignore: Mapping[bytes, Sequence[bytes]] | None = None,
    ) -> Manifest:
        """What stands at `paths` and, if `is_deep`, below; all of it or an error. An empty path is the whole folder.

        A path at which nothing stands is not in the listing. Records come in tree order of each path asked for.

        Args:
            paths: Where to look.
            has_digests: Read every file; without, files have no content.
            is_deep: Look below folders, too.
            has_cursor: Whether changes are asked for afterwards; without, the guest need not take note of them.
            ignore: By folder, the texts of ignore files that hold there, the weakest first; the guest reads none of its
                own. What they leave out, `.git` always, is a note; its changes are not told either from then on.
        """
        document = {
            "paths": [to_text(path) for path in paths],
            "digests": has_digests,
            "deep": is_deep,
            "cursor": has_cursor,
            "ignore": {to_text(folder): [to_text(text) for text in texts] for folder, texts in (ignore or {}).items()},
        }
        reader = manifest_reader()
        records: list[Record] = []
        size_bytes = 0
        async with self._stream("scan", "listing the folder", json_body(document)) as pieces:
            async for some in fed(pieces, reader.feed):
                records += some
                size_bytes += sum(map(_size_of, some))
                if len(records) > MAX_RECORDS or size_bytes > MAX_LISTING_BYTES:
                    raise garbled("a listing of more than a folder can be synced with")
        if reader.trailer is None:
            raise garbled("the listing was cut off")
        return Manifest(tuple(records), reader.trailer.cursor)

    async def batch(self, batch_id: str, steps: Iterable[Step] | AsyncIterable[Step]) -> list[Result]:
        """Make operations in order, and return what became of each, by `seq`: its position.

        After a cut the same batch may be sent again under the same id: nothing is done twice.

        Args:
            batch_id: Up to 64 letters, digits, `-` and `_`, made up by the caller.
            steps: What to do.
        """
        sent = 0

        async def counted() -> AsyncGenerator[Step, None]:
            nonlocal sent
            async for step in each(steps):
                sent += 1
                yield step

        results: dict[int, Result] = {}
        async for some in self.send_batch(batch_id, batch_body(counted()), lambda: sent):
            results.update((one.seq, one) for one in some)
        return list(results.values())

    async def send_batch(
        self, batch_id: str, body: AsyncIterable[bytes], sent: Callable[[], int]
    ) -> AsyncGenerator[list[Result], None]:
        """The same for operations that are encoded already; what became of some is told while others are made.

        A generator that ends has brought all results.

        Args:
            batch_id: See `batch`.
            body: What a `BatchWriter` made of them, to its end.
            sent: How many operations have gone out by now.
        """
        reader, told = result_reader(), 0
        hello = self._seen or await self.hello()
        packed, headers = self._on_its_way(body, hello)
        async with self._stream(f"batch/{batch_id}", "changing files", packed, headers) as pieces:
            async for some in fed(pieces, reader.feed):
                told += len(some)
                if some and max(told - 1, *(one.seq for one in some)) >= sent():
                    raise garbled("a result of what was not asked for")
                yield some
        if reader.trailer is None:
            raise garbled("the results were cut off")

    async def blob(self, digest: bytes) -> BlobState:
        """How much of a large content was uploaded before."""
        async with self._answer("HEAD", f"blob/{digest.hex()}", "asking for an upload", None) as answer:
            offset, is_complete = answer.headers.get("x-sbx-offset", ""), answer.headers.get("x-sbx-complete", "")
        if not (offset.isdecimal() and len(offset) <= _MAX_DIGITS):
            raise garbled("an upload without its size")
        return BlobState(int(offset), is_complete == "1")

    async def upload_blob(
        self,
        digest: bytes,
        chunks: AsyncIterable[bytes],
        *,
        offset: int,
        size_bytes: int,
        is_sparse: bool = True,
        is_provisional: bool = False,
    ) -> BlobState:
        """Send a large content, or a part of it, for a `PUT` of `Source.BLOB` to use; a cut keeps what arrived.

        Chunks that end early are a cut, too, and no error.

        Args:
            digest: Of the whole content; what has another one is thrown away at its end (`Conflict`).
            chunks: The content from `offset` on.
            offset: What `blob` said.
            size_bytes: Of the whole content.
            is_sparse: Whether zeros are to be looked for: what is sent as it is costs less.
            is_provisional: `digest` is only a name, made up while nobody knows the digest: the guest names it by that
                when all of it is there. Only where it `names_contents`.
        """
        query = {"offset": str(offset), "size": str(size_bytes), **({"provisional": "1"} if is_provisional else {})}
        hello = self._seen or await self.hello()
        body, headers = self._on_its_way(chunks, hello, may_be_sparse=is_sparse)
        if not headers:
            # A guest is faster at a body whose length it knows.
            left_bytes = size_bytes - offset
            body, headers = filewire.exactly(chunks, left_bytes, ""), {"content-length": str(left_bytes)}
        try:
            said = await self._call("PUT", f"blob/{digest.hex()}", "sending a file", body, query, headers)
        except filewire.SourceChanged:
            return await self.blob(digest)
        return BlobState(filewire.whole(said, "offset"), said.get("complete") is True)

    async def drop_blob(self, digest: bytes, offset: int) -> None:
        """Have what came of an upload thrown away: it is said to be all there is, which its digest denies."""
        for _ in range(2):
            try:
                await self.upload_blob(digest, nothing(), offset=offset, size_bytes=offset)
            except Conflict as exc:
                if exc.details.get("guest_code") != "bad_offset":
                    return
                # What was on its way came meanwhile; from now on, nobody listens to it.
                offset = (await self.blob(digest)).offset

    async def read(self, files: Sequence[Wanted]) -> AsyncGenerator[bytes | Result, None]:
        """The contents of files, one after the other: pieces, then the file's result, then the next file's pieces.

        A result of `DONE` has the state with the digest of what was sent; the caller compares. `MISMATCH` and `FAILED`
        may come behind pieces, which are of no use then. A generator that ends has brought all results.
        """
        wanted = [{"path": to_text(one.path), "digest": one.digest.hex()} for one in files]
        reader = ContentReader()
        ended = 0
        async with self._stream("read", "reading files", json_body({"files": wanted})) as pieces:
            async for some in fed(pieces, lambda data: list(reader.feed(data))):
                for one in some:
                    ended += isinstance(one, Result)
                    if ended > len(files):
                        raise garbled("a file that was not asked for")
                    yield one
        if reader.trailer is None:
            raise garbled("the contents were cut off")

    async def changes(self, cursor: str, *, wait_s: float = MAX_WAIT_S) -> Changes:
        """What changed since a cursor, without what came from batches; waits `wait_s` for something to change."""
        query = {"cursor": cursor, "wait": f"{wait_s:g}"}
        return changes_of(await self._call("GET", "changes", "waiting for changes", None, query))

    def _is_far_away(self) -> bool:
        return self._distance_s >= _FAR_S if self._is_far is None else self._is_far

    def _on_its_way(
        self, pieces: AsyncIterable[bytes], hello: TreeHello, *, may_be_sparse: bool = False
    ) -> tuple[AsyncIterable[bytes], Mapping[str, str]]:
        """A body as it is sent, with its headers: packed where sending takes longer than packing."""
        is_far = self._is_far_away()
        best = (ZEROS_ZSTD if is_far else ZEROS) if may_be_sparse else ""
        for codec in (best, ZSTD if is_far else ""):
            if codec in hello.codecs:
                return packed(pieces, codec), {CODEC_HEADER: codec}
        return pieces, {}

    @asynccontextmanager
    async def _stream(
        self, endpoint: str, doing: str, body: Body, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer in pieces, packed on the way where sending takes longer than packing."""
        fields = {ACCEPT_HEADER: ZSTD} if self._is_far_away() else {}
        async with self._answer("POST", endpoint, doing, body, headers={**(headers or {}), **fields}) as answer:
            codec = answer.headers.get(CODEC_HEADER, "")
            if codec not in ("", fields.get(ACCEPT_HEADER)):
                raise garbled("an answer packed in a way nobody asked for")
            yield unpacked(answer.pieces(), opener_of(codec))

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        endpoint: str,
        doing: str,
        body: Body,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Answer]:
        hello = self._seen or await self.hello()
        address = filewire.url(f"/v2/tree/{endpoint}", self._path, {"root": hello.root, **(query or {})})
        fields = {wire.BOOT_HEADER: hello.epoch, **(headers or {})}
        with translated(doing):
            async with self._transport.stream(
                method, address, headers=fields, content=body, patience=_PATIENCE
            ) as answer:
                await self._transport.check(answer, doing)
                yield answer

    async def _call(
        self,
        method: str,
        endpoint: str,
        doing: str,
        body: Body,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        async with self._answer(method, endpoint, doing, body, query, headers) as answer:
            return filewire.as_object(await whole_body(answer))


def _size_of(record: Record) -> int:
    return len(record.path) + (0 if isinstance(record, Note) else len(record.state.content))
