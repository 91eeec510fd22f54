"""The few threads all disk work runs in, and what every file handler needs around them."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import zlib
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from sbxguest.app import Disconnected, Request, WireError
from sbxguest.fileops import FileError, Owner, resolve
from sbxguest.filewrite import Journal
from sbxguest.state import Guest, GuestSettings
from sbxguest.tree import TreeError
from sbxguest.tree.report import code_of

T = TypeVar("T")

_THREADS = 8
_BATCH_BYTES = 1024 * 1024
_TREE_STATUS = {
    "disk_full": 507,
    "file_not_found": 404,
    "not_a_directory": 409,
    "access_denied": 403,
    "too_large": 413,
    **dict.fromkeys(("root_changed", "conflict", "bad_offset", "superseded", "wrong_content"), 409),
}

_pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="files")
_slots = asyncio.Semaphore(_THREADS)


class Sink(Protocol):
    """Where an upload goes: a file or a tree."""

    def write(self, chunks: list[bytes], /) -> None:
        """Take the next bytes. For one that is filled in place, they are views, and others are soon where they lie."""

    def abort(self) -> None:
        """Leave nothing half-written."""


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """Run blocking disk work in a files thread and translate its errors; at most as many wait as there are threads.

    Cancelling leaves the thread to finish.

    Raises:
        WireError: What the work's FileError or TreeError says, or that the disk is full.
    """
    async with _slots:
        try:
            return await asyncio.get_running_loop().run_in_executor(_pool, work, *args)
        except FileError as exc:
            raise WireError(exc.status, exc.code, exc.message) from exc
        except TreeError as exc:
            raise WireError(_TREE_STATUS.get(exc.code, 400), exc.code, exc.message) from exc
        except OSError as exc:
            if code_of(exc) != "disk_full":
                raise
            raise WireError(507, "disk_full", "no space is left on the sandbox's disk") from exc


def soon(work: Callable[[], object]) -> None:
    """Run short disk work, such as a close, in a files thread without waiting for it."""
    _pool.submit(work)


def owner_of(settings: GuestSettings) -> Owner:
    """Who owns what this guest creates: the job user, where the guest may give files away."""
    return Owner(settings.job_uid, settings.job_gid) if os.geteuid() == 0 else Owner()


@cache
def journal_at(workdir: str) -> Journal:
    """The journal of a sandbox. Its first use in a server removes what a killed server left behind."""
    # Named after the workdir: without an isolation runtime several sandboxes share one /tmp.
    folder = Path(tempfile.gettempdir()) / f".sbxguest-{os.geteuid()}"
    journal = Journal(folder / f"uploads-{zlib.crc32(os.fsencode(workdir)):08x}")
    journal.clean()
    return journal


def journal_of(guest: Guest) -> Journal:
    """The guest's journal; see `journal_at`."""
    return journal_at(guest.state.settings.workdir)


def path_of(request: Request) -> str:
    """The absolute path the query string names.

    Raises:
        WireError: 400, there is none; 403, it leads out of the sandbox.
    """
    try:
        state = request.guest.state
        return resolve(request.query.get("path", ""), state.workdir, state.settings.root)
    except FileError as exc:
        raise WireError(exc.status, exc.code, exc.message) from exc


def octal(text: str) -> int | None:
    """Permission bits from octal digits; None for nothing.

    Raises:
        WireError: 400, it is something else.
    """
    if not text:
        return None
    if not re.fullmatch(r"[0-7]{1,5}", text) or int(text, 8) > 0o7777:
        raise WireError(400, "bad_query", "`mode` must be octal digits, like 644")
    return int(text, 8)


def sha256_precondition(text: str) -> str:
    """`if_sha256` as the writer takes it: 64 hex digits, `none`, or empty.

    Raises:
        WireError: 400, it is something else.
    """
    digest = text.lower()
    if digest and digest != "none" and not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise WireError(400, "bad_query", "`if_sha256` must be 64 hex digits, or `none`")
    return digest


async def receive_into(sink: Sink, request: Request, *, keeps_rest: bool = False, in_place: bool = False) -> None:
    """Stream the request's body into `sink`, two batches in memory at most.

    Args:
        sink: Where it goes.
        request: Whose body.
        keeps_rest: Write what has arrived when the client goes away, too.
        in_place: The sink keeps nothing of what it is given, so that a large body needs no copy of it.

    Raises:
        WireError: The sink refused.
        Disconnected: The client went away.
    """
    if in_place and request.large is not None:
        async with aclosing(request.views(request.large)) as views:
            async for view in views:
                await in_thread(sink.write, [view])
        return
    writing: asyncio.Task[None] | None = None
    try:
        async with aclosing(_batches(request, keeps_rest)) as batches:
            async for batch in batches:
                if writing is not None:
                    await writing
                writing = asyncio.create_task(in_thread(sink.write, batch))
        if writing is not None:
            await writing
    finally:
        if writing is not None:
            if not keeps_rest:
                writing.cancel()
            await asyncio.wait((writing,))
            if not writing.cancelled():
                writing.exception()


async def _batches(request: Request, keeps_rest: bool) -> AsyncGenerator[list[bytes], None]:
    """The body of a request in pieces worth a thread's while."""
    batch: list[bytes] = []
    size_bytes = 0
    try:
        async with aclosing(request.stream()) as stream:
            async for piece in stream:
                batch.append(piece)
                size_bytes += len(piece)
                if size_bytes >= _BATCH_BYTES:
                    yield batch
                    batch, size_bytes = [], 0
    except Disconnected:
        if keeps_rest and batch:
            yield batch
        raise
    if batch:
        yield batch


async def aborted(sink: Sink) -> None:
    """Abort `sink`; harmless after its commit."""
    # Shielded: a cancelled request must still leave nothing behind.
    await asyncio.shield(asyncio.get_running_loop().run_in_executor(_pool, sink.abort))
