"""Pseudo-shells for faces: run a line, follow it, look at the queue, complete a word, all over one kept connection.

The state of a shell (its folder and exported variables) lives in the guest, so a dashboard, a script and an agent that
know its name share it. Each line is a job: it is listed, watched, signalled, resized and taken up as any other, by
`Jobs`. What a line leaves running in the background is its job's too.

    async with shells.open(row, "main") as shell:
        end = await shell.run("cd src && make", on_output=show, on_started=remember)
        print(end.result.exit_code, end.cwd)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sbxtui.core.errors import ConnectionLost, Unsupported
from sbxtui.core.jobs import Job, TerminalSize
from sbxtui.core.model import Registration
from sbxtui.core.shells import Completion, LineEnd, ShellView
from sbxtui.guest.client import GuestClient
from sbxtui.guest.jobs import JobRequest, new_job_id
from sbxtui.services.guests import Guests, speaks_v1
from sbxtui.services.jobnotes import JobNotes, NotedRun
from sbxtui.services.jobs import reattachable

__all__ = ["DEFAULT_NAME", "PseudoShell", "Shells", "new_job_id"]

DEFAULT_NAME = "main"
OnOutput = Callable[[str, bytes], Awaitable[None]]


class Shells:
    """Opens pseudo-shells in sandboxes of one context; lines are run as `actor`."""

    def __init__(self, guests: Guests, notes: JobNotes, actor: str) -> None:
        self._guests = guests
        self._notes = notes
        self._actor = actor

    @asynccontextmanager
    async def open(self, row: Registration, name: str = DEFAULT_NAME) -> AsyncIterator[PseudoShell]:
        """A shell for as long as the block lasts; leaving it changes nothing in the sandbox. Opening asks nobody.

        Raises:
            Unsupported: The sandbox has an old guest. Conflict: It is suspended. SandboxNotFound: It was terminated.
            ConnectionLost: With a hint how to take up the line that was followed.
        """
        if speaks_v1(row):
            raise Unsupported(f"the image of `{row.name}` has an old guest without shells", hint="rebuild the image")
        try:
            async with self._guests.connect(row) as guest:
                yield PseudoShell(guest, row, name, self._notes, self._actor)
        except ConnectionLost as exc:
            raise reattachable(exc, row.name) from exc


class PseudoShell:
    """Made by `Shells.open`. Its methods may be called at the same time."""

    def __init__(self, guest: GuestClient, row: Registration, name: str, notes: JobNotes, actor: str) -> None:
        self._guest = guest
        self._row = row
        self._notes = notes
        self._actor = actor
        self.name = name

    async def run(
        self,
        line: str,
        *,
        job_id: str = "",
        stdin: bytes | AsyncIterator[bytes] | None = None,
        timeout_s: float | None = None,
        terminal: TerminalSize | None = None,
        on_output: OnOutput | None = None,
        on_started: Callable[[Job], None] = lambda job: None,
    ) -> LineEnd:
        """Run a line and follow it to its end. Cancelling only stops following: the line goes on, or keeps its turn.

        Args:
            line: As typed; it may hold several commands and lines.
            job_id: An id for its job (`guest.jobs.new_job_id`), so that it can be cancelled while it waits.
            stdin: For its input; None gives it an empty one.
            timeout_s: Running seconds, then it is killed with everything it started.
            terminal: Run it on one, for programs that ask for it.
            on_output: Called with ("out", "err" or "pty", bytes) as output arrives; then the result carries none.
            on_started: Called when it is its turn, with its job: to signal, resize or take it up by `Jobs`.

        Raises:
            Conflict: It was taken out of the queue. Throttled: Too many lines wait.
            ConnectionLost: No way back for 30 s; it goes on.
        """
        watch = NotedRun(self._notes, self._row, on_started)
        request = JobRequest(
            line,
            timeout_s=timeout_s,
            actor=self._actor,
            job_id=job_id,
            terminal=terminal,
            has_stdin=stdin is not None,
            holds=True,
        )
        end = await self._guest.shells.run(
            self.name, request, stdin=stdin, on_output=on_output, on_started=watch.started
        )
        await watch.ended(end.result)
        return end

    async def look(self) -> ShellView:
        """Where the shell is, and what waits in it; before its first line it is nowhere."""
        return await self._guest.shells.look(self.name)

    async def complete(self, word: str, *, is_command: bool = False) -> Completion:
        """What the word being typed may become: names of files, or of programs for the first word of a line.

        Raises:
            AccessDenied: The word leads out of the sandbox. GuestUnreachable: The folder does not answer.
        """
        return await self._guest.shells.complete(self.name, word, is_command=is_command)

    async def cancel(self, job_id: str) -> None:
        """Take a line that waits out of the queue.

        Raises:
            NotFound: It does not wait. Conflict: It runs; signal its job.
        """
        await self._guest.shells.cancel(self.name, job_id)

    async def signal(self, job: Job, signal: str = "INT") -> None:
        """Signal a line that runs, over this connection: what Ctrl-C does. Raises NotFound."""
        await self._guest.jobs.signal(job.id, signal)
        await self._notes.event(job, "job.signal", signal=signal)

    async def resize(self, job: Job, size: TerminalSize) -> None:
        """Give the terminal of a line another size, over this connection."""
        await self._guest.jobs.resize(job.id, size.cols, size.rows)

    async def forget(self) -> None:
        """Forget the shell's folder, variables and queue, and end the line that runs. Raises NotFound."""
        await self._guest.shells.forget(self.name)
