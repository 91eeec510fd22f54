"""Running one command to its end: output, input, result."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sbxguest import wire
from sbxtui.core.errors import Conflict, GuestUnreachable, SbxError
from sbxtui.core.model import ExecResult
from sbxtui.guest.faults import garbled
from sbxtui.guest.streams import RECONNECT_S, LogReader, connection_lost
from sbxtui.guest.transport import RETRYABLE, Backoff, Transport

OnOutput = Callable[[str, bytes], Awaitable[None]]
TIMED_OUT_CODE = 124
_STDIN_PIECE_BYTES = 256 * wire.KIB
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What to run. `command` is an argument vector, or one line for the sandbox's shell."""

    command: Sequence[str] | str
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float | None = None
    user: str = ""
    actor: str = ""
    job_id: str = ""
    ends_with_caller: bool = False

    def body(self, *, has_stdin: bool) -> dict[str, Any]:
        """The request on the wire, with a fresh id if none was given."""
        is_line = isinstance(self.command, str)
        body: dict[str, Any] = {
            "id": self.job_id or new_job_id(),
            "shell" if is_line else "argv": self.command if is_line else list(self.command),
            "log": "hold",
            "stdin": "pipe" if has_stdin else "none",
            "on_disconnect": "kill" if self.ends_with_caller else "keep",
        }
        for name in ("cwd", "user", "actor"):
            if value := getattr(self, name):
                body[name] = value
        if self.env:
            body["env"] = dict(self.env)
        if self.timeout_s is not None:
            body["timeout_s"] = self.timeout_s
        return body


def new_job_id() -> str:
    """An id nobody else mints."""
    return secrets.token_hex(12)


async def run_command(
    transport: Transport,
    boot_id: str,
    request: ExecRequest,
    *,
    stdin: bytes | AsyncIterator[bytes] | None,
    on_output: OnOutput | None,
) -> ExecResult:
    """See `GuestClient.exec`."""
    body = request.body(has_stdin=stdin is not None)
    reader = LogReader(transport, body["id"], boot_id, holds=True, body=body)
    run = _Run(on_output)
    tasks = [asyncio.create_task(run.read(reader))]
    if stdin is not None:
        tasks.append(asyncio.create_task(_feed(transport, body["id"], boot_id, stdin, run.is_started)))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION if len(tasks) == 1 else asyncio.FIRST_COMPLETED)
        for task in reversed(tasks):
            # Input may end long before the command; only its failure ends the call.
            if task is tasks[0] or (task.done() and task.exception() is not None):
                await task
    except SbxError:
        # What the guest or the way to it said leaves the command as it is.
        raise
    except BaseException:
        # A cancel, or nobody takes the output any more: the command ends with its caller.
        await _end(transport, body["id"], boot_id)
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return run.result()


class _Run:
    """What has come of a command so far."""

    def __init__(self, on_output: OnOutput | None) -> None:
        self.is_started = asyncio.Event()
        self._on_output = on_output
        self._output = {"out": bytearray(), "err": bytearray()}
        self._exit: dict[str, object] = {}
        self._is_truncated = False

    async def read(self, reader: LogReader) -> None:
        """The whole log, to its EXIT."""
        async with contextlib.aclosing(reader.frames()) as frames:
            async for frame in frames:
                self.is_started.set()
                await self._take(frame)

    async def _take(self, frame: wire.Frame) -> None:
        match frame.type:
            case wire.FrameType.DATA:
                channel = "err" if frame.channel == wire.Channel.ERR else "out"
                if self._on_output is None:
                    self._output[channel] += frame.payload
                else:
                    await self._on_output(channel, frame.payload)
            case wire.FrameType.GAP:
                self._is_truncated = True
            case wire.FrameType.EXIT:
                try:
                    self._exit = wire.payload_json(frame)
                except wire.BadFrame as exc:
                    raise garbled(str(exc)) from exc

    def result(self) -> ExecResult:
        """The finished command."""
        code, signal = self._exit.get("code"), self._exit.get("signal")
        ended_by = signal if isinstance(signal, int) else 0
        is_timed_out = self._exit.get("timed_out") is True
        if not isinstance(code, int):
            code = 128 + ended_by
        duration_s = self._exit.get("duration_s")
        return ExecResult(
            exit_code=TIMED_OUT_CODE if is_timed_out else code,
            stdout=bytes(self._output["out"]),
            stderr=bytes(self._output["err"]),
            timed_out=is_timed_out,
            signal=ended_by,
            duration_s=float(duration_s) if isinstance(duration_s, int | float) else 0.0,
            lingering=self._exit.get("lingering") is True,
            truncated=self._is_truncated,
        )


async def _feed(
    transport: Transport, job_id: str, boot_id: str, stdin: bytes | AsyncIterator[bytes], is_started: asyncio.Event
) -> None:
    """Send all of `stdin`, then its end. A command that stops reading, or ends, ends this too."""
    await is_started.wait()
    offset = 0
    try:
        async for piece in _pieces(stdin):
            await _send(transport, job_id, boot_id, offset, piece)
            offset += len(piece)
        await _send(transport, job_id, boot_id, offset, b"", is_end=True)
    except Conflict as exc:
        if exc.details.get("guest_code") != "stdin_closed":
            raise
    except GuestUnreachable as exc:
        raise connection_lost(job_id, exc.message) from exc


async def _send(
    transport: Transport, job_id: str, boot_id: str, offset: int, piece: bytes, *, is_end: bool = False
) -> None:
    """One piece, in as many requests as the command takes to read it; each says where it stands."""
    backoff = Backoff(RECONNECT_S)
    end = offset + len(piece)
    while True:
        query: dict[str, str | int] = {"offset": offset, **({"eof": 1} if is_end else {})}
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
        if offset == end:
            return


async def _pieces(stdin: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(stdin, bytes):
        for start in range(0, len(stdin), _STDIN_PIECE_BYTES):
            yield stdin[start : start + _STDIN_PIECE_BYTES]
        return
    async for piece in stdin:
        for start in range(0, len(piece), _STDIN_PIECE_BYTES):
            yield piece[start : start + _STDIN_PIECE_BYTES]


async def _end(transport: Transport, job_id: str, boot_id: str) -> None:
    """End a command with its caller, as well as can be told in a moment; the guest's own rule catches the rest."""
    with contextlib.suppress(SbxError, TimeoutError):
        async with asyncio.timeout(_END_S):
            await transport.call(
                "DELETE", f"/v2/jobs/{job_id}", doing="ending a command", headers={wire.BOOT_HEADER: boot_id}
            )
