"""Files of a sandbox: contents as streams, single operations, whole trees. Nothing is ever held whole in memory."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from sbxguest.tree import TreeError, TreeReport, Unpacker
from sbxtui.core.errors import UsageError
from sbxtui.core.model import FileInfo
from sbxtui.guest import filewire
from sbxtui.guest.faults import garbled, raise_for_answer, translated, whole_body
from sbxtui.guest.filewire import Download, Listing, shown
from sbxtui.guest.http1 import Patience
from sbxtui.guest.transport import Transport

_STALL_S = 60.0
_ASK_FIRST_BYTES = 16 * 1024 * 1024
# The last byte of an upload is followed by the disk's own time, a big copy by the whole of it.
_SETTLE_S = 300.0
_PATIENCE = Patience(answer_s=_SETTLE_S, send_s=_STALL_S)


class GuestFiles:
    """File operations of one sandbox.

    Paths are text with surrogateescape, absolute or relative to the workdir. Every method raises `FileMissing`,
    `Conflict`, `AccessDenied`, `UsageError` or `QuotaExceeded` (disk full) for what the guest refuses, and
    `GuestUnreachable` when it does not answer or is cut off.

    Args:
        transport: To the guest; closed by its owner.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @asynccontextmanager
    async def download(self, path: str, *, start: int = 0, length: int | None = None) -> AsyncIterator[Download]:
        """Open a file, or `length` bytes from `start`; leaving the block ends the transfer."""
        headers = {}
        if start or length is not None:
            headers["range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
        if length == 0:
            raise UsageError("a range of no bytes was asked for")
        with translated(f"reading {shown(path)}"):
            async with self._transport.stream(
                "GET", filewire.url("/v2/files", path), headers=headers, patience=_PATIENCE
            ) as answer:
                await raise_for_answer(answer)
                yield filewire.download_of(path, answer)

    async def upload(
        self,
        path: str,
        chunks: AsyncIterable[bytes] | bytes,
        *,
        size_bytes: int | None = None,
        mode: int | None = None,
        mtime_ns: int | None = None,
        has_parents: bool = False,
        if_sha256: str = "",
    ) -> int:
        """Replace a file's content in one step and return its size; a failure or a cancel leaves the old content.

        Args:
            chunks: The content; pieces of 64 KiB to 1 MiB go fastest.
            size_bytes: Its size if known: the guest then refuses at once what does not fit.
            mode: Permission bits; None keeps an existing file's, else 0644.
            has_parents: Create missing folders.
            if_sha256: Only if this is the digest of what is there now (`none`: nothing is there), else `Conflict`.
        """
        query: dict[str, str] = {}
        if mode is not None:
            query["mode"] = f"{mode:o}"
        if mtime_ns is not None:
            query["mtime"] = f"{mtime_ns // 10**9}.{mtime_ns % 10**9:09d}"
        if has_parents:
            query["parents"] = "1"
        if if_sha256:
            query["if_sha256"] = if_sha256
        headers = {}
        if size_bytes is not None:
            await self._check_upload(path, size_bytes, if_sha256=if_sha256, has_parents=has_parents)
            headers["content-length"] = str(size_bytes)
            source = _once(chunks) if isinstance(chunks, bytes) else chunks
            chunks = filewire.exactly(source, size_bytes, path)
        with translated(f"writing {shown(path)}"):
            address = filewire.url("/v2/files", path, query)
            return filewire.whole(await self._ask("PUT", address, chunks, headers), "size_bytes")

    async def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        """What is at a path; a link itself unless `follow`."""
        return filewire.file_info(await self._op({"op": "stat", "path": path, "follow": follow}))

    async def exists(self, path: str) -> bool:
        """Whether something, even a dangling link, is at a path."""
        return (await self._op({"op": "exists", "path": path})).get("exists") is True

    async def list(self, path: str, *, recursive: bool = False, limit: int = 10_000) -> Listing:
        """The entries of a folder, sorted by path; no more than `limit` are read, and the listing says so."""
        entries: list[FileInfo] = []
        unreadable: list[str] = []
        is_truncated = False
        async with aclosing(self._list_lines(path, recursive=recursive, limit=limit)) as lines:
            async for line in lines:
                if line.get("end") is True:
                    is_truncated = line.get("truncated") is True
                elif len(entries) + len(unreadable) >= limit:
                    # A guest that goes on after what it was asked for is not listened to.
                    is_truncated = True
                    break
                elif "error" in line:
                    unreadable.append(filewire.text(line, "path"))
                else:
                    entries.append(filewire.file_info(line))
        return Listing(tuple(sorted(entries, key=lambda one: one.path)), is_truncated, tuple(sorted(unreadable)))

    async def iter_list(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileInfo]:
        """Every entry, however many, in the disk's own order."""
        async for line in self._list_lines(path, recursive=recursive, limit=None):
            if "end" not in line and "error" not in line:
                yield filewire.file_info(line)

    async def make_directory(self, path: str, *, mode: int | None = None, has_parents: bool = False) -> None:
        """Create a folder; with `has_parents` those above it too, and an existing one is fine."""
        extra = {} if mode is None else {"mode": f"{mode:o}"}
        await self._op({"op": "mkdir", "path": path, "parents": has_parents, **extra})

    async def remove(
        self, path: str, *, recursive: bool = False, missing_ok: bool = False, even_workdir: bool = False
    ) -> None:
        """Remove a file or link, or recursively a folder. `/` is always refused, the workdir unless `even_workdir`."""
        body = {"op": "rm", "path": path, "recursive": recursive, "force": missing_ok, "even_workdir": even_workdir}
        await self._op(body)

    async def move(self, path: str, to: str, *, overwrite: bool = True, has_parents: bool = False) -> None:
        """Rename `path` to exactly `to`."""
        await self._op({"op": "mv", "path": path, "to": to, "no_overwrite": not overwrite, "parents": has_parents})

    async def copy(
        self, path: str, to: str, *, recursive: bool = False, overwrite: bool = True, has_parents: bool = False
    ) -> tuple[str, ...]:
        """Copy within the sandbox to exactly `to`; returns special files that were left out (at most 100 of them)."""
        body = {"op": "cp", "path": path, "to": to, "recursive": recursive, "no_overwrite": not overwrite}
        answer = await self._op({**body, "parents": has_parents})
        return tuple(str(name) for name in answer.get("left_out", []))

    async def upload_tree(self, source: Path, path: str, *, has_parents: bool = False) -> TreeReport:
        """Send what is below the local folder `source` into a folder of the sandbox, merging.

        Entries the guest left out are in the report's problems. After a failure the files sent so far stay.
        """
        query = {"parents": "1"} if has_parents else {}
        with translated(f"writing {shown(path)}"):
            told = await self._ask("PUT", filewire.url("/v2/files/tar", path, query), filewire.packed(source))
        return filewire.harmless_report(filewire.tree_report(told))

    async def download_tree(self, path: str, target: Path, *, max_bytes: int | None = None) -> TreeReport:
        """Bring what is below a folder of the sandbox into the existing local folder `target`, merging.

        The sandbox is not trusted: nothing is made or followed outside `target`, and links that could lead there are
        problems of the report. After a failure the files received so far stay, each whole.

        Raises:
            UsageError: `target` is no folder, or more than `max_bytes` came.
        """
        try:
            unpacker = await asyncio.to_thread(Unpacker, os.fspath(target), max_bytes=max_bytes)
        except OSError as exc:
            raise UsageError(f"cannot write to `{target}`: {os.strerror(exc.errno or 0)}") from exc
        try:
            with translated(f"reading {shown(path)}"):
                address = filewire.url("/v2/files/tar", path)
                async with self._transport.stream("GET", address, patience=_PATIENCE) as answer:
                    await raise_for_answer(answer)
                    async for batch in filewire.batches(answer.pieces()):
                        await asyncio.to_thread(unpacker.write, batch)
            return filewire.harmless_report(await asyncio.to_thread(unpacker.commit))
        except TreeError as exc:
            raise filewire.tree_fault(exc) from exc
        finally:
            await asyncio.shield(asyncio.to_thread(unpacker.abort))

    async def _check_upload(self, path: str, size_bytes: int, *, if_sha256: str, has_parents: bool) -> None:
        """Ask first: a refusal of the upload itself would be read only after its last byte was sent."""
        if size_bytes < _ASK_FIRST_BYTES:
            return
        body = {"op": "check", "path": path, "size_bytes": size_bytes, "if_sha256": if_sha256, "parents": has_parents}
        try:
            await self._op(body)
        except UsageError as exc:
            # A guest that cannot be asked says so with this code; the upload itself then tells.
            if exc.details.get("guest_code") != "bad_request":
                raise

    async def _op(self, body: Mapping[str, object]) -> dict[str, Any]:
        with translated(f"{body['op']} {shown(str(body['path']))}"):
            return await self._ask("POST", "/v2/files/op", json.dumps(body).encode())

    async def _ask(
        self, method: str, url: str, content: AsyncIterable[bytes] | bytes, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """One request whose answer is an object."""
        async with self._transport.stream(method, url, content=content, headers=headers, patience=_PATIENCE) as answer:
            await raise_for_answer(answer)
            return filewire.as_object(await whole_body(answer))

    async def _list_lines(
        self, path: str, *, recursive: bool, limit: int | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        body: dict[str, object] = {"op": "list", "path": path, "recursive": recursive}
        if limit is not None:
            body["limit"] = limit
        has_ended = False
        with translated(f"listing {shown(path)}"):
            async with self._transport.stream(
                "POST", "/v2/files/op", content=json.dumps(body).encode(), patience=_PATIENCE
            ) as answer:
                await raise_for_answer(answer)
                async for line in filewire.lines(answer.pieces()):
                    value = filewire.as_object(line)
                    has_ended = value.get("end") is True
                    yield value
        if not has_ended:
            raise garbled("the listing was cut off")


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
