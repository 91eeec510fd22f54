"""Pseudo-shells of one guest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from sbxguest import wire
from sbxtui.core.errors import NotFound
from sbxtui.core.jobs import Job
from sbxtui.core.model import ExecResult
from sbxtui.core.shells import Candidate, Completion, LineEnd, QueuedLine, ShellView
from sbxtui.core.text import harmless, harmless_line
from sbxtui.guest.exec import run_line
from sbxtui.guest.jobs import JobRequest, instant_of
from sbxtui.guest.retry import patiently
from sbxtui.guest.transport import Transport


class GuestShells:
    """Shells of the guest behind a transport, by name; the first line makes one.

    All raise `GuestUnreachable`; `Unsupported` for a guest without shells; `Conflict` when it was started anew.
    """

    def __init__(self, transport: Transport, boot_id: Callable[[], Awaitable[str]]) -> None:
        self._transport = transport
        self._boot_id = boot_id

    async def run(
        self,
        name: str,
        request: JobRequest,
        *,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        on_output: Callable[[str, bytes], Awaitable[None]] | None = None,
        on_started: Callable[[Job], None] | None = None,
    ) -> LineEnd:
        """Give a shell a line and follow it to its end, however long it waits for its turn; cancelling leaves it alone.

        Args:
            name: Of the shell.
            request: Its command is the line; folder, variables and user are the shell's.
            stdin: For the line.
            on_output: Called with ("out", "err" or "pty", bytes); then the result carries none.
            on_started: Called when it is its turn.

        Raises:
            UsageError: The line is too long. Throttled: Too many lines wait. Conflict: It was taken out of the queue.
            ConnectionLost: No way back for 30 s; it goes on.
        """
        path, body = f"/v2/shells/{quote(name, safe='')}", _line_body(request)
        result, said = await run_line(
            self._transport,
            await self._boot_id(),
            path,
            body,
            stdin=stdin,
            on_output=on_output,
            on_started=on_started,
        )
        return _line_end(result, said.get("shell"))

    async def look(self, name: str) -> ShellView:
        """Where a shell is, and what waits in it; one that no line has made yet is empty and nowhere."""
        try:
            return _view(await self._call("GET", name, "", doing=f"looking at shell `{name}`"))
        except NotFound:
            return ShellView(name, "")

    async def cancel(self, name: str, line_id: str) -> None:
        """Take a line that waits out of the queue. Raises NotFound; Conflict, it runs."""
        await self._call("DELETE", name, f"/lines/{quote(line_id, safe='')}", doing="taking a line out of the queue")

    async def forget(self, name: str) -> None:
        """Forget a shell's folder, variables and queue, and end the line that runs. Raises NotFound."""
        await self._call("DELETE", name, "", doing=f"forgetting shell `{name}`")

    async def complete(self, name: str, word: str, *, is_command: bool = False, limit: int = 200) -> Completion:
        """Names a word may become: files below the shell's folder, or programs on its PATH.

        Raises:
            AccessDenied: The word leads out of the sandbox. GuestUnreachable: The folder does not answer.
        """
        query: dict[str, str | int] = {"word": word, "limit": limit, **({"kind": "command"} if is_command else {})}
        told = await self._call("GET", name, "/complete", doing=f"completing `{harmless_line(word)}`", query=query)
        matches = told.get("matches")
        found = [one for one in matches if isinstance(one, dict)] if isinstance(matches, list) else []
        candidates = tuple(Candidate(str(one.get("name")), one.get("is_folder") is True) for one in found)
        return Completion(str(told.get("base") or ""), candidates, told.get("is_whole") is True)

    async def _call(
        self, method: str, name: str, rest: str, *, doing: str, query: Mapping[str, str | int] | None = None
    ) -> dict[str, Any]:
        headers = {wire.BOOT_HEADER: await self._boot_id()}
        path = f"/v2/shells/{quote(name, safe='')}{rest}"
        call = partial(self._transport.call, method, path, doing=doing, headers=headers, query=query)
        return await (patiently(call) if method == "GET" else call())


def _line_body(request: JobRequest) -> dict[str, Any]:
    body = request.body()
    for name in ("argv", "shell", "cwd", "env", "user"):
        body.pop(name, None)
    return {**body, "line": request.command}


def _line_end(result: ExecResult, told: object) -> LineEnd:
    shell = told if isinstance(told, dict) else {}
    return LineEnd(result, _line(shell.get("cwd")), shell.get("is_kept") is True, _line(shell.get("why")))


def _view(told: Mapping[str, Any]) -> ShellView:
    env, queue = told.get("env"), told.get("queue")
    return ShellView(
        _line(told.get("name")),
        _line(told.get("cwd")),
        tuple(_line(name) for name in env) if isinstance(env, list) else (),
        tuple(_queued(line) for line in queue if isinstance(line, dict)) if isinstance(queue, list) else (),
    )


def _queued(told: Mapping[str, Any]) -> QueuedLine:
    position = told.get("position")
    return QueuedLine(
        _line(told.get("id")),
        harmless(str(told.get("line"))),
        _line(told.get("actor")),
        position if isinstance(position, int) else 0,
        told.get("state") == "running",
        instant_of(told.get("queued_at")),
    )


def _line(value: object) -> str:
    return harmless_line(value, limit=4_096) if isinstance(value, str) else ""
