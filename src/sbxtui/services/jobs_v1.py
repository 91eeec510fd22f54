"""Commands on images whose guest speaks the old contract: output comes at the end, and there are no jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from sbxtui.core.errors import Unsupported
from sbxtui.core.jobs import TIMED_OUT_CODE
from sbxtui.core.model import ExecResult
from sbxtui.guest.client import GuestClient

if TYPE_CHECKING:
    from sbxtui.services.jobs import Command


async def exec_v1(
    guest: GuestClient,
    command: Command,
    stdin: bytes | AsyncIterator[bytes] | None,
    on_output: Callable[[str, bytes], Awaitable[None]] | None,
) -> ExecResult:
    """Run a command to its end; what an old guest cannot do is refused, not left out.

    Raises:
        Unsupported: It needs input, a user or a terminal.
    """
    from sbxtui.guest.legacy import LegacyGuest

    if stdin is not None or command.user or command.terminal is not None:
        raise Unsupported("this image's guest takes neither input nor a user nor a terminal", hint="rebuild the image")
    argv = ["sh", "-lc", command.argv] if isinstance(command.argv, str) else command.argv
    old = LegacyGuest(guest.transport)
    result = await old.execute(argv, cwd=command.cwd, env=command.env, timeout_s=command.timeout_s)
    result = dataclasses.replace(result, timed_out=result.timed_out or result.exit_code == TIMED_OUT_CODE)
    if on_output is None:
        return result
    await on_output("out", result.stdout)
    await on_output("err", result.stderr)
    return dataclasses.replace(result, stdout=b"", stderr=b"")
