"""What is typed or piped into a job: each byte of a writer once, told by its offset."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from typing import Any, Protocol
from weakref import WeakValueDictionary

from sbxguest import wire
from sbxguest.app import WireError
from sbxguest.jobstate import Flag, JobState
from sbxguest.terminal import Terminal
from sbxguest.writers import WriterTable

_PIECE_BYTES = 64 * wire.KIB


class Changing(Protocol):
    """A job, as far as its input knows it."""

    @property
    def id(self) -> str:
        """For messages."""

    def wake(self) -> None:
        """Have everyone who waits look again."""

    def changed(self) -> Coroutine[Any, Any, object]:
        """Returns, when awaited, once there may be something new since this call."""


class JobInput:
    """Nothing, a pipe, or a terminal. Belongs to the event loop's thread.

    A pipe is one stream, so it has one offset for all who write. At a terminal several people may type, each with
    offsets of their own, and an end may be typed more than once.

    A server killed between a write and the note of it leaves no way to tell: those bytes are written twice if they are
    sent again.
    """

    def __init__(self, job: Changing, state: JobState, log_fd: int, *, has_any: bool) -> None:
        self._job = job
        self._state = state
        self._log_fd = log_fd
        self._has_any = has_any
        self._pipe = -1
        self._terminal: Terminal | None = None
        self._writers: WriterTable | None = None
        self._drop_pipe: Callable[[], None] = _nothing
        self._is_closed = True
        self._is_forgotten = False
        self._waiting = 0
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def open_pipe(self, fd: int, drop: Callable[[], None]) -> None:
        """Write to a pipe; `drop` has init close its copy once the input ends."""
        os.set_blocking(fd, False)
        self._pipe, self._drop_pipe, self._is_closed = fd, drop, False

    def open_terminal(self, terminal: Terminal) -> None:
        """Type at a terminal, which is its owner's to close."""
        self._terminal, self._writers, self._is_closed = terminal, WriterTable(self._log_fd), False

    @property
    def _fd(self) -> int:
        return self._pipe if self._terminal is None else self._terminal.input_fd

    @property
    def program_fd(self) -> int:
        """What the program reads from, or its other end; -1 where nothing can be typed any more."""
        if self._is_closed:
            return -1
        return self._pipe if self._terminal is None else self._terminal.program_fd

    def accepted(self, writer: str = "") -> int:
        """How many bytes of this writer have been taken."""
        return self._state.stdin_accepted if self._writers is None else self._writers.accepted(writer)

    def turn(self, writer: str = "") -> asyncio.Lock:
        """`async with` it around a run of `write` and `end`: others with the same offsets wait."""
        name = "" if self._terminal is None else writer
        return self._turns.setdefault(name, asyncio.Lock())

    def check(self) -> None:
        """Check that there is something to write to.

        Raises:
            WireError: 404 the job was deleted meanwhile; 409 it takes no input.
        """
        if self._is_forgotten:
            raise WireError(404, "not_found", f"job `{self._job.id}` was deleted")
        if not self._has_any:
            raise self._conflict("no_stdin", f"job `{self._job.id}` was started without stdin", "")

    # -- writing ------------------------------------------------------------------------------------------------------

    def check_offset(self, offset: int, writer: str = "") -> None:
        """Check that nothing is missing before `offset`.

        Raises:
            WireError: 409 `bad_offset`, with the accepted offset.
        """
        accepted = self.accepted(writer)
        if offset > accepted:
            raise self._conflict("bad_offset", f"stdin of job `{self._job.id}` is at {accepted}", writer)

    async def write(self, offset: int, data: bytes, *, writer: str = "", stall_s: float | None = None) -> bool:
        """Write what of `data`, which begins at `offset`, was not taken yet; wait for a job that does not read.

        Returns:
            False if the job read nothing for `stall_s` seconds; `accepted` says how far it got.

        Raises:
            WireError: 404 or 409, see `check` and `check_offset`; 409 `stdin_closed`.
        """
        self.check()
        self.check_offset(offset, writer)
        return await self._write_all(memoryview(data)[max(0, self.accepted(writer) - offset) :], writer, stall_s)

    async def end(self, offset: int, *, writer: str = "", stall_s: float | None = None) -> bool:
        """End the input behind `offset`; at a terminal, type what a program takes for an end. Once for each offset.

        Returns:
            False if there was no room to type it for `stall_s` seconds: it has to be asked for again.

        Raises:
            WireError: As `write`.
        """
        self.check()
        self.check_offset(offset, writer)
        if self._terminal is None or self._writers is None:
            self._state.set(Flag.STDIN_ENDED)
            self.close()
        elif not self._is_closed and not self._writers.has_ended_at(writer, offset):
            # Noted only once typed: who was cut off while it waited for room asks again.
            if not await self._write_all(memoryview(self._terminal.end_of_input()), None, stall_s):
                return False
            self._writers.end_at(writer, offset)
        return True

    async def _write_all(self, left: memoryview, writer: str | None, stall_s: float | None) -> bool:
        loop = asyncio.get_running_loop()
        give_up_s = None if stall_s is None else loop.time() + stall_s
        while left:
            if self._is_closed or self._fd < 0:
                raise self._closed(writer)
            try:
                written = self._write_some(left[:_PIECE_BYTES])
            except BlockingIOError:
                if give_up_s is not None and loop.time() >= give_up_s:
                    return False
                await self._until_writable(give_up_s)
                continue
            except OSError as exc:
                self.close()
                raise self._closed(writer) from exc
            self._count(written, writer)
            left = left[written:]
            give_up_s = None if stall_s is None else loop.time() + stall_s
        return True

    def _write_some(self, data: memoryview) -> int:
        return os.write(self._pipe, data) if self._terminal is None else self._terminal.write(data)

    def _count(self, written: int, writer: str | None) -> None:
        if writer is None:
            return
        if self._writers is not None:
            self._writers.add(writer, written)
            return
        self._state.stdin_accepted += written
        self._state.save()

    async def _until_writable(self, give_up_s: float | None) -> None:
        """Until the job may have read, or it ended. A job that does not read blocks only the one who writes to it."""
        loop = asyncio.get_running_loop()
        fd = self._fd
        loop.add_writer(fd, self._job.wake)
        self._waiting += 1
        try:
            # Any wake-up is good enough: the caller's next look says whether there is room.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(give_up_s):
                    await self._job.changed()
        finally:
            self._waiting -= 1
            # Closed meanwhile, the number may be another file's by now.
            if not self._waiting and self._fd == fd and not self._is_closed:
                loop.remove_writer(fd)

    # -- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take no more; a pipe ends. Nothing happens if it has ended."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._fd >= 0:
            # Somebody may be waiting to write: the loop must forget the number before another file gets it.
            asyncio.get_running_loop().remove_writer(self._fd)
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
            self._drop_pipe()
        self._job.wake()

    def forget(self) -> None:
        """The job was deleted: close, and write nothing to its log file any more."""
        self.close()
        self._is_forgotten = True
        if self._writers is not None:
            self._writers.close()

    def _closed(self, writer: str | None) -> WireError:
        return self._conflict("stdin_closed", f"job `{self._job.id}` reads no more input", writer or "")

    def _conflict(self, code: str, message: str, writer: str) -> WireError:
        return WireError(409, code, message, details={"accepted": self.accepted(writer)})


def _nothing() -> None:
    """Init holds nothing of this input."""
