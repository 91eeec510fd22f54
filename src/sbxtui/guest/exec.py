"""Running one command to its end: output, input, result."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any

from sbxguest import wire
from sbxtui.core.errors import SbxError
from sbxtui.core.jobs import Channel, Job, JobExit
from sbxtui.core.model import ExecResult
from sbxtui.guest.jobs import CHANNELS, JobRequest, decode_exit, decode_job, json_of
from sbxtui.guest.stdin import feed
from sbxtui.guest.streams import LogReader
from sbxtui.guest.transport import Transport

OnOutput = Callable[[str, bytes], Awaitable[None]]
OnStarted = Callable[[Job], None]
_END_S = 5.0


async def run_command(
    transport: Transport,
    boot_id: str,
    request: JobRequest,
    *,
    stdin: bytes | AsyncIterator[bytes] | None,
    on_output: OnOutput | None,
    on_started: OnStarted | None = None,
) -> ExecResult:
    """See `GuestClient.exec`."""
    body = request.body()
    reader = LogReader(transport, body["id"], boot_id, holds=True, body=body)
    run = _Run(boot_id, on_output, on_started)

    async def feeding() -> None:
        await run.is_started.wait()
        await feed(transport, body["id"], boot_id, stdin or b"")

    try:
        return await _to_the_end(run, reader, None if stdin is None else feeding())
    except SbxError:
        # What the guest or the way to it said leaves the command as it is.
        raise
    except BaseException:
        # A cancel, or nobody takes the output any more: the command ends with its caller.
        await _end(transport, body["id"], boot_id)
        raise


async def run_line(
    transport: Transport,
    boot_id: str,
    path: str,
    body: Mapping[str, Any],
    *,
    stdin: bytes | AsyncIterator[bytes] | None,
    on_output: OnOutput | None,
    on_started: OnStarted | None,
) -> tuple[ExecResult, dict[str, object]]:
    """Give a line to a shell at `path` and follow it, from the moment it is its turn; cancelling leaves it alone.

    Returns:
        How it ended, and what its EXIT says.

    Raises:
        Conflict: It was taken out of the queue. ConnectionLost: No way back for 30 s; it goes on.
    """
    job_id = str(body["id"])
    reader = LogReader(transport, job_id, boot_id, holds=True, body=body, start_path=path)
    run = _Run(boot_id, on_output, on_started)

    async def feeding() -> None:
        await run.is_started.wait()
        await feed(transport, job_id, boot_id, stdin or b"")

    result = await _to_the_end(run, reader, None if stdin is None else feeding())
    return result, run.exit_document


async def rejoin(
    transport: Transport,
    boot_id: str,
    job: Job,
    *,
    cursor: int,
    stdin: bytes | AsyncIterator[bytes] | None,
    on_output: OnOutput | None,
) -> ExecResult:
    """Take up a job that somebody began: its output from `cursor` on, and `stdin` behind what it has taken before.

    At a job on a terminal several may type at once; the end of `stdin` is not that of the terminal.

    Raises:
        ConnectionLost: As `GuestClient.exec`; the job goes on. It goes on after a cancel, too.
    """
    reader = LogReader(transport, job.id, boot_id, cursor=cursor, holds=True)
    run = _Run(boot_id, on_output, None)
    feeding = None
    if stdin is not None and job.has_terminal:
        feeding = feed(transport, job.id, boot_id, stdin, writer=secrets.token_hex(8), ends=False)
    elif stdin is not None:
        feeding = feed(transport, job.id, boot_id, stdin, offset=job.stdin_accepted)
    return await _to_the_end(run, reader, feeding)


async def _to_the_end(run: _Run, reader: LogReader, feeding: Coroutine[Any, Any, None] | None) -> ExecResult:
    tasks = [asyncio.create_task(run.read(reader))]
    if feeding is not None:
        tasks.append(asyncio.create_task(feeding))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in reversed(tasks):
            # Input may end long before the command; only its failure ends the call.
            if task is tasks[0] or (task.done() and task.exception() is not None):
                await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return run.result()


class _Run:
    """What has come of a command so far."""

    def __init__(self, boot_id: str, on_output: OnOutput | None, on_started: OnStarted | None) -> None:
        self._boot_id = boot_id
        self.is_started = asyncio.Event()
        self._on_output = on_output
        self._on_started = on_started
        self._output = {"out": bytearray(), "err": bytearray()}
        self._exit = JobExit(None)
        self.exit_document: dict[str, object] = {}
        self._is_truncated = False

    async def read(self, reader: LogReader) -> None:
        """The whole log, to its EXIT."""
        async with contextlib.aclosing(reader.frames()) as frames:
            async for frame in frames:
                self._note_started(frame)
                await self._take(frame)

    def _note_started(self, frame: wire.Frame) -> None:
        if self.is_started.is_set():
            return
        self.is_started.set()
        if self._on_started is not None and frame.type == wire.FrameType.JOB:
            self._on_started(decode_job(json_of(frame), self._boot_id))

    async def _take(self, frame: wire.Frame) -> None:
        match frame.type:
            case wire.FrameType.DATA:
                channel = CHANNELS.get(frame.channel, Channel.OUT)
                if self._on_output is None:
                    self._output["err" if channel is Channel.ERR else "out"] += frame.payload
                else:
                    await self._on_output(channel.value, frame.payload)
            case wire.FrameType.GAP:
                self._is_truncated = True
            case wire.FrameType.EXIT:
                self.exit_document = json_of(frame)
                self._exit = decode_exit(self.exit_document)

    def result(self) -> ExecResult:
        """The finished command."""
        output = self._output
        return self._exit.as_result(bytes(output["out"]), bytes(output["err"]), truncated=self._is_truncated)


async def _end(transport: Transport, job_id: str, boot_id: str) -> None:
    """End a command with its caller, as well as can be told in a moment; the guest's own rule catches the rest."""
    with contextlib.suppress(SbxError, TimeoutError):
        async with asyncio.timeout(_END_S):
            await transport.call(
                "DELETE", f"/v2/jobs/{job_id}", doing="ending a command", headers={wire.BOOT_HEADER: boot_id}
            )
