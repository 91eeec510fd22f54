"""`WS /v2/jobs/{id}/attach`: everything of a job over one connection. The messages are described in `wire.py`."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import aclosing

from sbxguest import wire
from sbxguest.app import Request, WireError
from sbxguest.job import Job
from sbxguest.jobspec import parse_size
from sbxguest.jobviews import cursor_of, frames_of, job_of, parse_signal
from sbxguest.sockets import SocketRoute, WebSocket
from sbxguest.wire import Frame, FrameType

_WRITER_MAX = 64
# Small enough to get through whole on a line that is cut often.
_MESSAGE_BYTES = 32 * wire.KIB
# Of input that waits: empty ones take memory, too.
_FRAMES_MAX = 8192
_CLOSE_GARBLED = 1007
_CLOSE_DELETED = 4404


async def attach(request: Request, socket: WebSocket) -> None:
    """See the module. Ends with the job's EXIT, or with the client."""
    job = job_of(request)
    cursor = cursor_of(request, job)
    writer = request.query.get("writer", "")
    if len(writer) > _WRITER_MAX:
        raise WireError(400, "bad_query", f"`writer` must be at most {_WRITER_MAX} characters")
    await socket.accept()
    await _Attachment(job, socket, writer, holds=request.flag("hold")).run(cursor)


class _Attachment:
    """One connection: shows the log, hears the client and feeds the job at the same time, none waiting for another."""

    def __init__(self, job: Job, socket: WebSocket, writer: str, *, holds: bool) -> None:
        self._job = job
        self._socket = socket
        self._writer = writer
        self._holds = holds
        # As who types, so it is known again as who reads.
        self._reader = writer or secrets.token_hex(8)
        self._input: asyncio.Queue[Frame] = asyncio.Queue()
        self._input_bytes = 0

    async def run(self, cursor: int) -> None:
        """Until the log's end or the client's. What was typed by then and not written is dropped: no ACK said so."""
        tasks = [asyncio.create_task(work) for work in (self._show(cursor), self._hear(), self._feed())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _show(self, cursor: int) -> None:
        document = {**self._job.describe(), "accepted": self._job.input.accepted(self._writer)}
        await self._socket.send(wire.encode(wire.json_frame(FrameType.JOB, cursor, document)))
        frames = frames_of(
            self._job, cursor, wants_follow=True, holds=self._holds, reader=self._reader, piece_bytes=_MESSAGE_BYTES
        )
        async with aclosing(frames):
            async for piece in frames:
                await self._socket.send(piece)
        if self._job.log.is_closed:
            await self._socket.close(_CLOSE_DELETED, "the job was deleted")

    async def _hear(self) -> None:
        while (message := await self._socket.receive()) is not None:
            try:
                frames = wire.decode_message(message)
            except wire.BadFrame as exc:
                await self._socket.close(_CLOSE_GARBLED, str(exc)[:100])
                return
            for frame in frames:
                try:
                    self._take(frame)
                except WireError as error:
                    await self._refuse(error)

    def _take(self, frame: Frame) -> None:
        match frame.type:
            case FrameType.STDIN | FrameType.EOF:
                is_over = self._input_bytes + len(frame.payload) > wire.INPUT_WINDOW_BYTES
                if is_over or self._input.qsize() >= _FRAMES_MAX:
                    raise WireError(429, "too_much_input", "more input is under way than the window holds")
                self._input_bytes += len(frame.payload)
                self._input.put_nowait(frame)
            case FrameType.SIGNAL:
                self._job.signal(*parse_signal(_document(frame)))
            case FrameType.RESIZE:
                self._job.resize(parse_size(_document(frame)))
            case FrameType.TAKEN if self._holds:
                self._job.acknowledge(frame.cursor, self._reader)

    async def _feed(self) -> None:
        job, writer = self._job, self._writer
        while True:
            frame = await self._input.get()
            try:
                async with job.input.turn(writer):
                    if frame.type == FrameType.STDIN:
                        await job.input.write(frame.cursor, frame.payload, writer=writer)
                    else:
                        await job.input.end(frame.cursor, writer=writer)
            except WireError as error:
                await self._refuse(error)
            finally:
                self._input_bytes -= len(frame.payload)
            await self._socket.send(wire.encode(Frame(FrameType.ACK, job.input.accepted(writer))))

    async def _refuse(self, error: WireError) -> None:
        await self._socket.send(wire.encode(wire.json_frame(FrameType.ERROR, 0, error.document())))


def _document(frame: Frame) -> dict[str, object]:
    try:
        return wire.payload_json(frame)
    except wire.BadFrame as exc:
        raise WireError(400, "bad_json", str(exc)) from exc


SOCKET_ROUTES = (SocketRoute("/v2/jobs/{id}/attach", attach),)
