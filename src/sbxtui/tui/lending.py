"""Lending the whole terminal to a line of `sbx`, which puts it in order itself, and taking it back."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from typing import Any

from textual.app import App

from sbxtui.core.errors import SbxError
from sbxtui.core.text import harmless_line
from sbxtui.settings import Settings

_FLAGS = ("region", "profile")
_STDIN = 0
_END_S = 5.0
_SAID_LINES = 3


def same_flags(settings: Settings, context: str) -> list[str]:
    """The global flags with which another `sbx` looks at the same context as these settings."""
    given = [key for key in _FLAGS if settings.sources.get(key) == "flag"]
    return ["--context", context, *(word for key in given for word in (f"--{key}", str(getattr(settings, key))))]


async def lend_terminal(app: App[Any], words: Sequence[str]) -> tuple[int, str]:
    """Run `sbx WORDS…` on our terminal; everything else here goes on meanwhile, unseen.

    Cancelling ends it; the terminal is ours again in any case.

    Returns:
        Its exit code, and what it said last on stderr, harmless.

    Raises:
        SbxError: It cannot be started. SuspendNotSupported: There is no terminal to lend.
    """
    is_cancelled = False
    with app.suspend(), _raw():
        running = asyncio.ensure_future(_run(words))
        # Nothing may be raised in here: textual would not take the terminal back.
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            is_cancelled = True
            running.cancel()
            await asyncio.wait({running})
    if is_cancelled:
        raise asyncio.CancelledError
    return running.result()


async def _run(words: Sequence[str]) -> tuple[int, str]:
    line = [sys.executable, "-P", "-m", "sbxtui", *words]
    try:
        process = await asyncio.create_subprocess_exec(*line, stderr=asyncio.subprocess.PIPE)
    except OSError as exc:
        raise SbxError(f"cannot start sbx: {exc.strerror or exc}") from exc
    try:
        _, errors = await process.communicate()
    except asyncio.CancelledError:
        await _end(process)
        raise
    said = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
    return process.returncode or 0, harmless_line(" ".join(said[-_SAID_LINES:]))


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it so that it can put the terminal in order."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Raw from the first moment: what is typed before the other program is up is its own, and none of it a signal."""
    # A terminal that hung up is past caring.
    before = None
    with contextlib.suppress(termios.error):
        before = termios.tcgetattr(_STDIN)
        tty.setraw(_STDIN, termios.TCSANOW)
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(_STDIN, termios.TCSANOW, before)
