"""Input for a job: every byte once and in order, over whatever connections it takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from sbxguest import wire
from sbxtui.core.errors import Conflict, GuestUnreachable
from sbxtui.guest.faults import garbled
from sbxtui.guest.streams import RECONNECT_S, connection_lost
from sbxtui.guest.transport import RETRYABLE, Backoff, Transport

_STDIN_PIECE_BYTES = 256 * wire.KIB


async def feed(
    transport: Transport,
    job_id: str,
    boot_id: str,
    stdin: bytes | AsyncIterator[bytes],
    *,
    offset: int = 0,
    writer: str = "",
    ends: bool = True,
) -> None:
    """Send all of `stdin`, then its end. A command that stops reading, or ends, ends this too.

    Args:
        transport: To the guest.
        job_id: A job that was started with input.
        boot_id: The boot it runs in.
        stdin: The bytes.
        offset: How many the job has taken from others before.
        writer: Who types, at a job on a terminal: each has offsets of their own.
        ends: Whether the end of `stdin` is the end of the job's input.

    Raises:
        ConnectionLost: No way to the guest for 30 s. Conflict: The job takes no input, or somebody else feeds it.
    """
    send = partial(_send, transport, job_id, boot_id, writer)
    try:
        async for piece in _pieces(stdin):
            await send(offset, piece)
            offset += len(piece)
        if ends:
            await send(offset, b"", is_end=True)
    except Conflict as exc:
        if exc.details.get("guest_code") != "stdin_closed":
            raise
    except GuestUnreachable as exc:
        raise connection_lost(job_id, exc.message) from exc


async def _send(
    transport: Transport, job_id: str, boot_id: str, writer: str, offset: int, piece: bytes, *, is_end: bool = False
) -> None:
    """One piece, in as many requests as the command takes to read it; each says where it stands."""
    backoff = Backoff(RECONNECT_S)
    end = offset + len(piece)
    while True:
        query: dict[str, str | int] = {"offset": offset, **({"eof": 1} if is_end else {})}
        if writer:
            query["writer"] = writer
        try:
            answer = await transport.call(
                "POST",
                f"/v2/jobs/{job_id}/stdin",
                doing="sending input to a command",
                query=query,
                headers={wire.BOOT_HEADER: boot_id},
                content=piece[offset - end :] if offset < end else b"",
            )
        except RETRYABLE as exc:
            await backoff.wait(exc)
            continue
        backoff.reset()
        accepted = answer.get("accepted")
        if not isinstance(accepted, int) or not offset <= accepted <= end:
            raise garbled("input accepted that was not sent")
        offset = accepted
        if offset == end and answer.get("ended", True):
            return


async def _pieces(stdin: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(stdin, bytes):
        for start in range(0, len(stdin), _STDIN_PIECE_BYTES):
            yield stdin[start : start + _STDIN_PIECE_BYTES]
        return
    async for piece in stdin:
        for start in range(0, len(piece), _STDIN_PIECE_BYTES):
            yield piece[start : start + _STDIN_PIECE_BYTES]
