"""The shapes of the tree endpoints, decoded once and with suspicion: a sandbox may answer anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sbxguest.tree import BadRecord, TreeError
from sbxguest.tree.codec import Opener
from sbxguest.tree.entry import DIGEST_NAME, check_path, from_text
from sbxtui.core.errors import Conflict, FileMissing, SbxError, Unsupported
from sbxtui.core.text import harmless_line
from sbxtui.guest.faults import garbled
from sbxtui.guest.filewire import text

_T = TypeVar("_T")
# Of guests that do not say.
_MAX_OPERATIONS = 20_000


@dataclass(frozen=True, slots=True)
class TreeHello:
    """What a guest says of one of its folders. Text is harmless.

    Attributes:
        guest_id: Another one in a sandbox made anew, or copied.
        epoch: Another one after each start or restore.
        root: Device, inode and birth of the folder.
        feed: How changes are noticed: `fanotify`, `inotify`, or `scan` where they are looked for; empty before the
            first listing.
        codecs: What streams may be compressed with.
        max_operations: Of a batch.
        names_contents: Whether it takes a large content whose digest is not known yet, and names it when it is there.
    """

    guest_id: str
    epoch: str
    root: str
    feed: str
    codecs: tuple[str, ...]
    max_operations: int = _MAX_OPERATIONS
    names_contents: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths below which something may have changed, each a hint to look; and where to go on from.

    `must_rescan`: what changed since the cursor is not known any more.
    """

    cursor: str
    paths: tuple[bytes, ...]
    must_rescan: bool


@dataclass(frozen=True, slots=True)
class BlobState:
    """How much of a large content the guest has."""

    offset: int
    is_complete: bool


def hello_of(said: Mapping[str, Any]) -> TreeHello:
    """The answer to hello.

    Raises:
        GuestUnreachable: It is none. Unsupported: It names contents by another digest.
    """
    digest = harmless_line(text(said, "digest"))
    if digest != DIGEST_NAME:
        raise Unsupported(
            f"this image's guest names contents by {digest or 'nothing'}, and not by {DIGEST_NAME} as this sbx does",
            hint="rebuild the image with `sbx image build`, and make a new sandbox of it",
        )
    codecs, features = said.get("codecs"), said.get("features")
    if not isinstance(codecs, list):
        raise garbled("a folder without its codecs")
    return TreeHello(
        guest_id=harmless_line(text(said, "guest_id")),
        epoch=harmless_line(text(said, "epoch")),
        root=harmless_line(text(said, "root")),
        feed=harmless_line(text(said, "feed")),
        codecs=tuple(harmless_line(one) for one in codecs if isinstance(one, str)),
        max_operations=_max_operations(said.get("limits")),
        names_contents=isinstance(features, list) and "provisional" in features,
    )


def _max_operations(limits: object) -> int:
    said = limits.get("operations") if isinstance(limits, Mapping) else None
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else _MAX_OPERATIONS


def changes_of(said: Mapping[str, Any]) -> Changes:
    """The answer of the change feed.

    Raises:
        GuestUnreachable: It is none, or names what is no path.
    """
    paths = said.get("paths")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise garbled("`paths` is no list")
    with sound_records():
        return Changes(text(said, "cursor"), tuple(map(_path, paths)), said.get("must_rescan") is True)


def _path(said: str) -> bytes:
    path = from_text(said)
    if path:
        check_path(path)
    return path


@contextmanager
def sound_records() -> Iterator[None]:
    """Turns records that are none, and reasons the guest gives for not going on, into our errors."""
    try:
        yield
    except BadRecord as exc:
        raise garbled(harmless_line(str(exc))) from exc
    except TreeError as exc:
        raise _fault(exc) from exc


def _fault(exc: TreeError) -> SbxError:
    kind = FileMissing if exc.code == "file_not_found" else Conflict
    return kind(harmless_line(exc.message), details={"guest_code": harmless_line(exc.code)})


async def fed(pieces: AsyncIterable[bytes], feed: Callable[[bytes], _T]) -> AsyncIterator[_T]:
    """What `feed` makes of each piece of an answer.

    Raises:
        GuestUnreachable: It is no stream of records. SbxError: What the guest says of why it cannot go on.
    """
    async for piece in pieces:
        with sound_records():
            made = feed(piece)
        yield made


async def unpacked(pieces: AsyncIterable[bytes], opener: Opener | None) -> AsyncIterator[bytes]:
    """What the pieces of an answer hold, each part unpacked when it is asked for: all of them may be more than there is
    memory.

    Raises:
        GuestUnreachable: They are not packed so.
    """
    async for piece in pieces:
        if opener is None:
            yield piece
            continue
        parts = opener.open([piece])
        while True:
            with sound_records():
                part = next(parts, b"")
            if not part:
                break
            yield part
            # Nor may whatever else there is to do wait for a part that says nothing, and the thousands behind it.
            await asyncio.sleep(0)
