"""Running commands in sandboxes."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sbxtui.core.errors import Unsupported
from sbxtui.core.model import ExecResult, Registration
from sbxtui.guest.client import GuestClient
from sbxtui.services.guests import Guests, speaks_v1

_TIMED_OUT = 124

OnOutput = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run: an argument vector, or one shell line. `timeout_s` counts running time; None is no limit."""

    argv: Sequence[str] | str
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float | None = None
    user: str = ""


class Jobs:
    """Runs commands in sandboxes of one context."""

    def __init__(self, guests: Guests, actor: str) -> None:
        self._guests = guests
        self._actor = actor

    async def exec(
        self,
        row: Registration,
        command: Command,
        *,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        on_output: OnOutput | None = None,
        ends_with_caller: bool = False,
    ) -> ExecResult:
        """Run a command to its end.

        Args:
            row: Where.
            command: What.
            stdin: Bytes for its standard input; None gives it an empty one.
            on_output: Called with ("out" or "err", bytes) as output arrives; then the result carries none.
            ends_with_caller: Losing this process ends the command too; else it goes on. Cancelling ends it always.

        Raises:
            GuestUnreachable: The guest cannot be reached. Conflict: The sandbox is suspended.
        """
        async with self._guests.connect(row) as guest:
            if speaks_v1(row):
                return await _exec_v1(guest, command, stdin, on_output)
            return await guest.exec(
                command.argv,
                cwd=command.cwd,
                env=command.env,
                stdin=stdin,
                timeout_s=command.timeout_s,
                user=command.user,
                actor=self._actor,
                on_output=on_output,
                ends_with_caller=ends_with_caller,
            )


async def _exec_v1(
    guest: GuestClient, command: Command, stdin: bytes | AsyncIterator[bytes] | None, on_output: OnOutput | None
) -> ExecResult:
    """Run a command on an old guest: output comes at the end, and what it cannot do is refused, not left out."""
    from sbxtui.guest.legacy import LegacyGuest

    if stdin is not None or command.user:
        raise Unsupported("this image's guest takes neither input nor a user", hint="rebuild the image")
    argv = ["sh", "-lc", command.argv] if isinstance(command.argv, str) else command.argv
    old = LegacyGuest(guest.transport)
    result = await old.execute(argv, cwd=command.cwd, env=command.env, timeout_s=command.timeout_s)
    result = dataclasses.replace(result, timed_out=result.timed_out or result.exit_code == _TIMED_OUT)
    if on_output is None:
        return result
    await on_output("out", result.stdout)
    await on_output("err", result.stderr)
    return dataclasses.replace(result, stdout=b"", stderr=b"")
