"""Ctrl-C while a command runs: the first one is the command's, the second ends it and us."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from types import TracebackType

from sbxtui.core.errors import Interrupted, SbxError
from sbxtui.core.jobs import Job

# As long as a guest is given to end a command.
_ENDING_S = 5.0


class Interrupts:
    """`with` this around a command in a task of its own: Ctrl-C is heard by it and by nobody else.

    Before the command runs, the first Ctrl-C already leaves.

    `is_left` says that the person wants to leave.

    Args:
        send: Interrupts the running command; its failure is nothing, the next Ctrl-C does not depend on it.
    """

    def __init__(self, send: Callable[[Job], Awaitable[object]]) -> None:
        self._send = send
        self._job: Job | None = None
        self._sending: asyncio.Task[None] | None = None
        self._task: asyncio.Task[object] | None = None
        self.is_left = False
        self._patient_until_s = 0.0

    def job_started(self, job: Job) -> None:
        """From now on there is something to interrupt."""
        self._job = job

    def __enter__(self) -> Interrupts:
        self._task = asyncio.current_task()
        # A script's background command is started deaf to the Ctrl-C that is meant for those in front.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._pressed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        if self.is_left:
            # All that is left is to say so and end, which takes a moment.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._sending is not None:
            self._sending.cancel()
        if self.is_left and isinstance(error, asyncio.CancelledError):
            words = "interrupted twice: asked for the command to be killed" if self._job else "interrupted"
            raise Interrupted(words) from error

    def _pressed(self) -> None:
        if self._job is not None and self._sending is None:
            self._sending = asyncio.ensure_future(self._pass_on(self._job))
        elif self._task is not None:
            self._leave(self._task)

    def _leave(self, task: asyncio.Task[object]) -> None:
        """Leave; who goes on pressing does not cut off what ends the command, unless that takes long."""
        now_s = asyncio.get_running_loop().time()
        if self.is_left and now_s < self._patient_until_s:
            return
        self.is_left, self._patient_until_s = True, now_s + _ENDING_S
        task.cancel()

    async def _pass_on(self, job: Job) -> None:
        with contextlib.suppress(SbxError):
            await self._send(job)
