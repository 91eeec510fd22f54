"""Jobs of one guest: what to run, what the guest says of it, and following its log."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sbxguest import wire
from sbxtui.core.errors import GuestUnreachable
from sbxtui.core.jobs import Channel, Job, JobExit, JobGap, JobOutput, JobPiece, JobState, TerminalSize
from sbxtui.core.model import ContextName, ExecResult, SandboxId
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass
from sbxtui.guest.faults import garbled, may_have_arrived
from sbxtui.guest.retry import patiently
from sbxtui.guest.streams import RECONNECT_S, LogReader, start_unknown
from sbxtui.guest.transport import Transport

CHANNELS: Mapping[int, Channel] = {
    wire.Channel.OUT: Channel.OUT,
    wire.Channel.ERR: Channel.ERR,
    wire.Channel.PTY: Channel.PTY,
}
_COMMAND_MAX = 4_096
_RETRY_S = 2.0
# What people type at a terminal for it.
_END_OF_INPUT = b"\x04"
# Beyond what a job can have; what a guest claims beyond it is as good as nothing.
_CODE_MAX, _SIGNAL_MAX, _DURATION_MAX_S, _COUNT_MAX = (1 << 31) - 1, 127, 1e10, (1 << 63) - 1
_LONG_AGO = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What to run. `command` is an argument vector, or one line for the sandbox's shell.

    `holds` makes the job wait for its reader instead of losing output; `ends_with_caller` ends it when nobody has
    followed it for 30 s.
    """

    command: Sequence[str] | str
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float | None = None
    user: str = ""
    actor: str = ""
    job_id: str = ""
    label: str = ""
    terminal: TerminalSize | None = None
    has_stdin: bool = False
    holds: bool = False
    ends_with_caller: bool = False

    def body(self) -> dict[str, Any]:
        """The request on the wire, with a fresh id if none was given."""
        is_line = isinstance(self.command, str)
        body: dict[str, Any] = {
            "id": self.job_id or new_job_id(),
            "shell" if is_line else "argv": self.command if is_line else list(self.command),
            "log": "hold" if self.holds else "ring",
            "stdin": "pipe" if self.has_stdin else "none",
            "on_disconnect": "kill" if self.ends_with_caller else "keep",
        }
        for name in ("cwd", "user", "actor", "label"):
            if value := getattr(self, name):
                body[name] = value
        if self.env:
            body["env"] = dict(self.env)
        if self.timeout_s is not None:
            body["timeout_s"] = self.timeout_s
        if self.terminal is not None:
            size = self.terminal
            body["tty"] = {"cols": size.cols, "rows": size.rows, "term": size.term}
        return body


def new_job_id() -> str:
    """An id nobody else mints."""
    return secrets.token_hex(12)


class GuestJobs:
    """Jobs of the guest behind a transport. Jobs come back without context and sandbox: the guest knows neither.

    All raise `GuestUnreachable`; `Conflict` when the sandbox was started anew since this client's hello.
    """

    def __init__(self, transport: Transport, boot_id: Callable[[], Awaitable[str]]) -> None:
        self._transport = transport
        self._boot_id = boot_id

    async def start(self, request: JobRequest) -> Job:
        """Begin a job and leave it to itself. Asking again with the same id gives the same job.

        Raises:
            UsageError: It cannot be, like a missing cwd. Throttled: Too many jobs run.
            ConnectionLost: It may have begun: no answer came. GuestUnreachable: It has not.
        """
        body = request.body()
        may_have_begun = False

        async def begin() -> dict[str, Any]:
            nonlocal may_have_begun
            try:
                return await self._call("POST", "", doing="starting a command", document=body)
            except GuestUnreachable as exc:
                may_have_begun = may_have_begun or may_have_arrived(exc)
                raise

        try:
            told = await patiently(begin, RECONNECT_S)
        except GuestUnreachable as exc:
            if may_have_begun:
                raise start_unknown(body["id"], exc.message) from exc
            raise
        return decode_job(told, await self._boot_id())

    async def list(self) -> list[Job]:
        """Every job the guest knows, oldest first."""
        answer = await self._call("GET", "", doing="listing jobs")
        jobs, boot_id = answer.get("jobs"), await self._boot_id()
        return [decode_job(job, boot_id) for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []

    async def get(self, job_id: str) -> Job:
        """One job. Raises NotFound."""
        answer = await self._call("GET", f"/{job_id}", doing=f"looking up job `{job_id}`")
        return decode_job(answer, await self._boot_id())

    async def signal(self, job_id: str, signal: str = "TERM", *, to: str = "group") -> Job:
        """Signal a job's `leader`, `group` or whole `tree`; how it is then. Raises NotFound, UsageError."""
        body = {"sig": int(signal) if signal.isdecimal() else signal, "to": to}
        answer = await self._call("POST", f"/{job_id}/signal", doing=f"signalling job `{job_id}`", document=body)
        return decode_job(answer, await self._boot_id())

    async def end(self, job_id: str) -> Job:
        """Ask a job's group to end, and after its grace period kill everything it ever started; how it is then.

        Raises:
            NotFound: There is no such job. Unsupported: The guest is too old to do that.
        """
        answer = await self._call("POST", f"/{job_id}/end", doing=f"ending job `{job_id}`")
        return decode_job(answer, await self._boot_id())

    async def resize(self, job_id: str, cols: int, rows: int) -> None:
        """Give a job's terminal another size. Raises NotFound, Conflict."""
        body = {"cols": cols, "rows": rows}
        await self._call("POST", f"/{job_id}/resize", doing=f"resizing job `{job_id}`", document=body)

    async def delete(self, job_id: str) -> None:
        """End a job with everything it started, and forget it. Raises NotFound."""
        await self._call("DELETE", f"/{job_id}", doing=f"ending job `{job_id}`")

    async def rejoin(
        self,
        job: Job,
        *,
        cursor: int = 0,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        on_output: Callable[[str, bytes], Awaitable[None]] | None = None,
    ) -> ExecResult:
        """Take up a job that somebody began, to its end; cancelling leaves it running.

        Args:
            job: As its guest told it last.
            cursor: Where in its log to begin.
            stdin: Sent behind what it has taken before.
            on_output: As for `GuestClient.exec`.

        Raises:
            NotFound: There is no such job. Conflict: It takes no input.
            ConnectionLost: No way back for 30 s; it goes on.
        """
        from sbxtui.guest.exec import rejoin

        boot_id = await self._boot_id()
        return await rejoin(self._transport, boot_id, job, cursor=cursor, stdin=stdin, on_output=on_output)

    async def write(self, job: Job, data: bytes, *, ends: bool) -> None:
        """Write to a job's input behind what it has taken; returns when it has taken this, too, or has ended.

        Raises:
            Conflict: It takes no input, or somebody else writes to it now.
        """
        from sbxtui.guest.stdin import feed

        boot_id = await self._boot_id()
        if job.has_terminal:
            typed = data + (_END_OF_INPUT if ends else b"")
            await feed(self._transport, job.id, boot_id, typed, writer=secrets.token_hex(8), ends=False)
        else:
            await feed(self._transport, job.id, boot_id, data, offset=job.stdin_accepted, ends=ends)

    async def follow(
        self, job_id: str, *, cursor: int = 0, until_quiet: bool = False
    ) -> AsyncGenerator[JobPiece, None]:
        """A job's log from `cursor` on; its exit comes last. Close it to stop; the job never notices.

        Who follows is never waited for: one that is too slow gets gaps.

        Args:
            job_id: Which.
            cursor: Where to begin; an offset in bytes.
            until_quiet: End where the log ends now instead of waiting for more.

        Raises:
            NotFound: There is no such job. UsageError: The log ends before `cursor`.
            ConnectionLost: No way back for 30 s; the job goes on.
        """
        boot_id = await self._boot_id()
        until = await self._present_end(job_id) if until_quiet else None
        if until is not None and cursor == until:
            return
        reader = LogReader(self._transport, job_id, boot_id, cursor=cursor, follows=not until_quiet, until=until)
        async with aclosing(reader.frames()) as frames:
            async for frame in frames:
                if (piece := decode_piece(frame)) is not None:
                    yield piece

    async def _present_end(self, job_id: str) -> int | None:
        """Where the log of a job that runs ends now; None if the job has ended: its EXIT is the end then."""
        job = await self.get(job_id)
        return None if job.is_over else job.cursor

    async def _call(self, method: str, path: str, *, doing: str, document: object = None) -> dict[str, Any]:
        headers = {wire.BOOT_HEADER: await self._boot_id()}
        call = partial(self._transport.call, method, f"/v2/jobs{path}", doing=doing, headers=headers, document=document)
        return await (patiently(call, _RETRY_S) if method == "GET" else call())


def decode_piece(frame: wire.Frame) -> JobPiece | None:
    """A frame of a log as a piece of it; None for frames that carry nothing of it.

    Raises:
        GuestUnreachable: No guest of sbx would send that.
    """
    match frame.type:
        case wire.FrameType.DATA:
            return JobOutput(frame.cursor, CHANNELS.get(frame.channel, Channel.OUT), frame.payload)
        case wire.FrameType.GAP:
            return JobGap(frame.cursor, frame.end_cursor)
        case wire.FrameType.EXIT:
            return decode_exit(json_of(frame))
        case _:
            return None


def json_of(frame: wire.Frame) -> dict[str, object]:
    """What a JOB or EXIT frame says. Raises GuestUnreachable for nonsense."""
    try:
        return wire.payload_json(frame)
    except wire.BadFrame as exc:
        raise garbled(str(exc)) from exc


def decode_exit(told: Mapping[str, Any]) -> JobExit:
    """The wire's EXIT document."""
    code, signal, duration_s = told.get("code"), told.get("signal"), told.get("duration_s")
    return JobExit(
        code=code if isinstance(code, int) and abs(code) <= _CODE_MAX else None,
        signal=signal if isinstance(signal, int) and 0 <= signal <= _SIGNAL_MAX else 0,
        timed_out=told.get("timed_out") is True,
        oom=told.get("oom") is True,
        lingering=told.get("lingering") is True,
        duration_s=_seconds(duration_s),
    )


def decode_job(told: Mapping[str, Any], boot_id: str) -> Job:
    """The wire's job document; all text is harmless."""
    exit_document, state = told.get("exit"), told.get("state")
    return Job(
        context=ContextName(""),
        sandbox_id=SandboxId(""),
        id=_line(told.get("id")),
        boot_id=boot_id,
        command=_command_text(told),
        actor=_line(told.get("actor")),
        created_at=instant_of(told.get("created_at")),
        label=_line(told.get("label")),
        shell=_line(told.get("shell_name")),
        state=JobState(state) if state in {one.value for one in JobState} else JobState.UNKNOWN,
        has_terminal=bool(told.get("tty")),
        has_stdin=told.get("stdin") == "pipe" or bool(told.get("tty")),
        exit=decode_exit(exit_document) if isinstance(exit_document, dict) else None,
        cursor=_whole(told.get("cursor")),
        stdin_accepted=_whole(told.get("stdin_accepted")),
        awaits_input=told.get("awaits_input") is True,
    )


def _command_text(told: Mapping[str, Any]) -> str:
    """The command on one line: a shell line as it was written, else the words, quoted where a shell would need it."""
    import shlex

    argv = told.get("argv")
    words = [word for word in argv if isinstance(word, str)] if isinstance(argv, list) else []
    if told.get("shell") and words:
        return harmless_line(words[-1], limit=_COMMAND_MAX)
    return harmless_line(shlex.join(words), limit=_COMMAND_MAX)


def _line(value: object) -> str:
    return harmless_line(value) if isinstance(value, str) else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= _COUNT_MAX else 0


def _seconds(value: object) -> float:
    # A comparison of numbers of any size; `float` of a large one fails, and NaN compares as false.
    return float(value) if isinstance(value, int | float) and 0 <= value <= _DURATION_MAX_S else 0.0


def instant_of(value: object) -> datetime:
    """An instant as a guest writes it; long ago if that is none."""
    try:
        instant = datetime.fromisoformat(str(value))
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        # An offset may lead out of the years there are.
        return _LONG_AGO
