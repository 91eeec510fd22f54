"""A question to the person at the terminal. The event loop goes on meanwhile, so that Ctrl-C ends it at once."""

from __future__ import annotations

import asyncio
import os
import sys
import termios

from sbxtui.cli.output import tell

# More than a terminal hands out as one line.
_LINE_BYTES = 1 << 13
# Of what termios tells.
_LOCAL_FLAGS = 3


async def ask(question: str) -> bool:
    """Ask a person for a yes on the terminal; anything else is a no.

    Nothing is read before a whole line was typed: what is typed after Ctrl-C is the next program's.
    """
    tell(f"{question} [y/N] ")
    try:
        line = await _typed_line(sys.stdin.fileno())
    except asyncio.CancelledError:
        tell("\n")
        raise
    return line.strip().lower() in (b"y", b"yes")


async def ask_hidden(question: str) -> str:
    """A line the person types unseen; the terminal shows again what is typed, whatever ends this."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    hidden = list(before)
    hidden[_LOCAL_FLAGS] &= ~termios.ECHO
    tell(f"{question}: ")
    termios.tcsetattr(number, termios.TCSAFLUSH, hidden)
    try:
        line = await _typed_line(number)
    finally:
        termios.tcsetattr(number, termios.TCSAFLUSH, before)
        tell("\n")
    return line.decode(errors="replace").rstrip("\r\n")


async def _typed_line(number: int) -> bytes:
    """A line of the terminal behind `number`; what there is of one when it hung up."""
    loop = asyncio.get_running_loop()
    is_typed = asyncio.Event()
    loop.add_reader(number, is_typed.set)
    try:
        await is_typed.wait()
        return os.read(number, _LINE_BYTES)
    except OSError:
        # It hung up: nobody said yes.
        return b""
    finally:
        loop.remove_reader(number)
