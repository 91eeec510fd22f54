"""`shell`, `exec -t` and `attach` to a terminal: the person's terminal is lent to a job, and given back."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from sbxtui.cli.call import Call
from sbxtui.cli.ended import finish
from sbxtui.cli.keyboard import Keyboard
from sbxtui.cli.killed import KillWatch
from sbxtui.cli.output import terminal_kind
from sbxtui.cli.plaintext import PlainText
from sbxtui.cli.rawmode import RawTerminal, TerminalModes, size_of
from sbxtui.core.errors import Interrupted, SbxError, UsageError
from sbxtui.core.jobs import Job, TerminalSize
from sbxtui.core.model import ExecResult
from sbxtui.core.text import harmless
from sbxtui.services.attachment import Attachment
from sbxtui.services.jobs import Command, OnOutput

# A shell that reads its own start-up files, not those of a login, which would undo the PATH of an image.
_SHELL = ("sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash; fi; exec sh")
_HUNG_UP = 128 + 1
# Output, input, errors: the first that is a terminal tells the size.
_STREAMS = (1, 0, 2)
_REPLAY_BYTES = 32 * 1024


async def shell(call: Call) -> int:
    """Open a shell in a sandbox on this terminal."""
    check_terminal(call, "`sbx exec -i SANDBOX -- sh` runs a script from its input")
    row = await call.services.sandboxes.find(call.args.sandbox)
    command = Command(_SHELL, cwd=call.args.cwd, user=call.args.user, terminal=terminal_size(), label="shell")
    return await run_on_terminal(call, call.services.jobs.begin(row, command))


async def run_on_terminal(
    call: Call,
    attaching: AbstractAsyncContextManager[Attachment],
    *,
    cursor: int | None = 0,
    is_typing: bool = True,
    is_plain: bool = False,
    ends_when_left: bool = False,
) -> int:
    """Lend our terminal to a job until it ends or the person leaves; returns the exit code.

    Args:
        call: The call.
        attaching: To a job on a terminal; entered and left here.
        cursor: Where in its output to begin; None shows what was last said and has programs draw themselves anew.
        is_plain: Show as plain text what was said before we came.
        is_typing: Pass on what is typed, Ctrl-C too; else our terminal stays as it is.
        ends_when_left: Whether leaving ends the job, with its sandbox.
    """
    keyboard, modes = Keyboard(sys.stdin.fileno()), TerminalModes()
    job: Job | None = None
    result: ExecResult | None = None
    killed = ""
    try:
        async with attaching as attachment, _lent(call, attachment, modes, is_lent=is_typing):
            job = attachment.job
            cursor = await _catch_up(call, attachment, modes, cursor, is_plain=is_plain)
            stdin, shown = keyboard.typed() if is_typing else None, _shown_by(call, modes, keyboard)
            running = asyncio.ensure_future(attachment.run(cursor=cursor, stdin=stdin, on_output=shown))
            watch = KillWatch(call, job.sandbox_id)
            result = await _until_left(running, keyboard)
            killed = await watch.words(result) if result is not None else ""
    except asyncio.CancelledError:
        if job is not None and result is None:
            _say_left(call, job, ends_when_left=ends_when_left)
        raise
    if keyboard.dropped_bytes:
        call.out.note(f"\nnote: {keyboard.dropped_bytes:,} bytes that were typed were not taken, and are lost")
    if result is not None:
        return finish(call, result, killed=killed)
    _say_left(call, job, ends_when_left=ends_when_left)
    if keyboard.has_hung_up:
        return _HUNG_UP
    return Interrupted.exit_code if ends_when_left else 0


def _shown_by(call: Call, modes: TerminalModes, keyboard: Keyboard) -> OnOutput:
    """What passes output on to our terminal, for as long as that is there."""

    async def show(_channel: str, data: bytes) -> None:
        modes.follow(data)
        try:
            await call.out.pass_on(data)
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
            keyboard.hang_up()

    return show


def _say_left(call: Call, job: Job, *, ends_when_left: bool) -> None:
    if ends_when_left:
        call.out.note(f"\nleft; the sandbox `{job.sandbox}` was removed with all that ran in it")
        return
    way_back = f"sbx attach {job.sandbox} {job.id}"
    call.out.note(f"\nleft job `{job.id}`, which goes on; come back with `{way_back}`")


def check_terminal(call: Call, instead: str) -> None:
    """Check that there is a person at a terminal to lend.

    Raises:
        UsageError: Our input is none, or documents were asked for.
    """
    if call.out.is_json:
        raise UsageError("a terminal cannot be written as --json", hint="leave --json or the terminal out")
    if not sys.stdin.isatty():
        raise UsageError("our input is not a terminal", hint=instead)


def terminal_size() -> TerminalSize:
    """Our terminal's size and kind, or what programs expect where we have none."""
    size = size_of(*_STREAMS)
    default = TerminalSize()
    cols, rows = size or (default.cols, default.rows)
    return TerminalSize(cols, rows, terminal_kind() or default.term)


@contextlib.asynccontextmanager
async def _lent(call: Call, attachment: Attachment, modes: TerminalModes, *, is_lent: bool) -> AsyncIterator[None]:
    """Our terminal raw, the job's as large as ours; both in order again afterwards."""
    if not is_lent:
        yield
        return
    has_changed = asyncio.Event()
    has_changed.set()
    sizing = asyncio.ensure_future(_keep_size(attachment, has_changed))
    try:
        with RawTerminal(sys.stdin.fileno(), has_changed.set):
            try:
                yield
            finally:
                # Whoever hung up has nothing left to put in order.
                with contextlib.suppress(OSError):
                    call.out.raw(modes.undoing())
    finally:
        sizing.cancel()
        await asyncio.gather(sizing, return_exceptions=True)


async def _keep_size(attachment: Attachment, has_changed: asyncio.Event) -> None:
    """Tell the size after each change, one at a time, so that the last one counts."""
    while True:
        await has_changed.wait()
        has_changed.clear()
        # What could not be told is told with the next change; the job may have ended meanwhile.
        with contextlib.suppress(SbxError):
            await attachment.resize(terminal_size())


async def _until_left(running: asyncio.Future[ExecResult], keyboard: Keyboard) -> ExecResult | None:
    """The result, or None when the person left before there was one."""
    leaving = asyncio.ensure_future(keyboard.has_left.wait())
    try:
        await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await running if running.done() else None
    finally:
        for task in (running, leaving):
            task.cancel()
        await asyncio.gather(running, leaving, return_exceptions=True)


async def _catch_up(
    call: Call, attachment: Attachment, modes: TerminalModes, cursor: int | None, *, is_plain: bool
) -> int:
    """Show what was said before as far as it is not to be passed on as it is; returns the cursor behind it."""
    if cursor is None:
        cursor = await _show_latest(call, attachment, modes)
    elif is_plain:
        plain = PlainText()
        async for piece in attachment.said(cursor):
            await call.out.pass_on(plain.of(piece.data).replace(b"\n", b"\r\n"))
            cursor = piece.cursor + len(piece.data)
        await call.out.pass_on(plain.rest())
    else:
        return cursor
    await _draw_anew(attachment)
    return cursor


async def _show_latest(call: Call, attachment: Attachment, modes: TerminalModes) -> int:
    """The last lines as plain text: escapes from the middle of a stream would ask our terminal for answers."""
    data, cursor = await attachment.latest(_REPLAY_BYTES)
    modes.follow(data)
    if modes.is_on_alternate_screen:
        await call.out.pass_on(modes.doing())
    else:
        lines = harmless(data.decode(errors="replace")).split("\n")[-terminal_size().rows :]
        await call.out.pass_on("\r\n".join(lines).encode())
    return cursor


async def _draw_anew(attachment: Attachment) -> None:
    """Another size for a moment: what draws its whole screen does so on a change only."""
    size = terminal_size()
    with contextlib.suppress(SbxError):
        await attachment.resize(TerminalSize(size.cols, max(1, size.rows - 1), size.term))
        await attachment.resize(size)
