"""The hooks of a build: `/ready` before the snapshot, `/validate` on what was started from it."""

from __future__ import annotations

import asyncio

from sbxtui.localcloud.hooks import Dial, call_hook
from sbxtui.localcloud.program import Program

_ASK_AGAIN_S = 0.1
_OK, _NOT_YET, _NOBODY = 200, 503, 502


class BuildFailed(Exception):
    """A build failed for a reason that has words of the platform's."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


async def ask_until_done(dial: Dial, program: Program, name: str) -> None:
    """Call a hook of an image until it answers 200; nothing happens where the image has none.

    Raises:
        BuildFailed: It answers neither 200 nor 503, or its time is over; in the platform's words.
    """
    if name not in program.hooks:
        return
    title, timeout_s = name.capitalize(), program.hooks[name]
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                outcome = await call_hook(dial, program.hook_port, name, timeout_s=timeout_s)
                if outcome.status == _OK:
                    return
                # Nobody who answers is one who does not listen yet.
                if outcome.status not in (0, _NOT_YET, _NOBODY):
                    break
                await asyncio.sleep(_ASK_AGAIN_S)
    except TimeoutError as exc:
        raise BuildFailed(f"{title} hook invocation timed out after {_duration(timeout_s)}") from exc
    kind = "client error (HTTP 4xx)" if outcome.status < 500 else "server error (HTTP 5xx)"
    raise BuildFailed(f"{title} hook check failed: the application returned a {kind} response")


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"PT{f'{minutes}M' if minutes else ''}{f'{rest}S' if rest or not minutes else ''}"
