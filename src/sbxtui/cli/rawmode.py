"""The person's own terminal while it is lent to a job: raw, and given back as it was however that ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Any

_MODES = re.compile(rb"\x1b\[\?([\d;]{1,64})([hl])")
_LONGEST_MODE = 72
# On unless a program says otherwise: the cursor and line wrap.
_USUALLY_SET = frozenset({b"25", b"7"})
_ALTERNATE = (b"47", b"1047", b"1049")
# What a program may leave behind: alternate screens, cursor, wrap, application keys, mouse and focus reports,
# bracketed paste.
_UNDONE = frozenset(
    b"1 7 9 25 47 66 1000 1001 1002 1003 1004 1005 1006 1015 1016 1047 1049 2004 2026 2031 2048".split()
)

# What else a program may change, by how it does that, and what undoes it. A terminal's margins are reset around its
# cursor, which that would send home.
_OTHERS = (
    (re.compile(rb"\x1b\[>4;[\d;]*m"), b"\x1b[>4m"),
    (re.compile(rb"\x1b="), b"\x1b>"),
    (re.compile(rb"\x1b\[\d*;\d*r"), b"\x1b7\x1b[r\x1b8"),
    (re.compile(rb"\x1b\([^B]|\x0e"), b"\x1b(B\x0f"),
)
# How keys are reported is a stack: a program puts one way on it and takes it off again.
_KEYS = re.compile(rb"\x1b\[([<>])(\d{0,4})[\d;]*u")
_WHOLE_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]+[0-~]|[0-Z\\-~])")


class TerminalModes:
    """Follows which modes output sets, to undo those of a program that was left in the middle."""

    def __init__(self) -> None:
        self._changed: set[bytes] = set()
        self._others: set[bytes] = set()
        self._keys_pushed = 0
        self._rest = b""

    def follow(self, data: bytes) -> None:
        """Output passed by; a sequence may lie across two pieces."""
        data = self._rest + data
        for found in _MODES.finditer(data):
            for mode in found[1].split(b";"):
                if mode in _UNDONE:
                    is_usual = (found[2] == b"h") == (mode in _USUALLY_SET)
                    (self._changed.discard if is_usual else self._changed.add)(mode)
        self._others.update(undo for sets, undo in _OTHERS if sets.search(data))
        for found in _KEYS.finditer(data):
            change = 1 if found[1] == b">" else -int(found[2] or b"1")
            self._keys_pushed = max(0, self._keys_pushed + change)
        start = data.rfind(b"\x1b", -_LONGEST_MODE)
        is_cut = start >= 0 and not _WHOLE_SEQUENCE.match(data, start)
        self._rest = data[start:] if is_cut else b""

    @property
    def is_on_alternate_screen(self) -> bool:
        """Whether a program draws its whole screen now."""
        return not self._changed.isdisjoint(_ALTERNATE)

    def doing(self) -> bytes:
        """What to write so that another terminal is as the program left its own: the whole screen first."""
        order = sorted(self._changed, key=lambda mode: (mode not in _ALTERNATE, int(mode)))
        return b"".join(b"\x1b[?%s%s" % (mode, b"l" if mode in _USUALLY_SET else b"h") for mode in order)

    def undoing(self) -> bytes:
        """What to write so that the terminal is as usual again; empty when nothing was left behind."""
        if not self._changed and not self._others and not self._keys_pushed:
            return b""
        # The alternate screen last: its own cursor and keys are put right before it goes.
        order = sorted(self._changed, key=lambda mode: (mode in _ALTERNATE, int(mode)))
        pieces = [b"\x1b[?%s%s" % (mode, b"h" if mode in _USUALLY_SET else b"l") for mode in order]
        others = [undo for _, undo in _OTHERS if undo in self._others]
        if self._keys_pushed:
            others.append(b"\x1b[<%du" % self._keys_pushed)
        return b"".join([*others, *pieces]) + b"\x1b[0m"


class RawTerminal:
    """`with` this, the terminal behind descriptor `number` passes on every key; afterwards it is as it was.

    Also after errors and signals that end us in order, and when it was stopped and continued from outside.

    Args:
        number: A descriptor of the terminal, to read from.
        on_resize: Called when its size changed.
    """

    def __init__(self, number: int, on_resize: Callable[[], None]) -> None:
        self._number = number
        self._on_resize = on_resize
        self._before: list[Any] = []

    def __enter__(self) -> RawTerminal:
        self._before = termios.tcgetattr(self._number)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._on_resize)
        loop.add_signal_handler(signal.SIGCONT, self._continued)
        self._make_raw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGWINCH, signal.SIGCONT):
            loop.remove_signal_handler(number)
        # Not waiting for output to drain: nobody may be reading it. A terminal that hung up is past caring.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._number, termios.TCSANOW, self._before)

    def _make_raw(self) -> None:
        # What was typed ahead is the job's.
        tty.setraw(self._number, termios.TCSANOW)

    def _continued(self) -> None:
        """A shell that stopped us took its own modes back."""
        with contextlib.suppress(termios.error):
            self._make_raw()
        self._on_resize()


def size_of(*numbers: int) -> tuple[int, int] | None:
    """Columns and rows of the first descriptor that is a terminal and tells a size; None if none does."""
    for number in numbers:
        with contextlib.suppress(OSError, ValueError):
            size = os.get_terminal_size(number)
            if size.columns and size.lines:
                return size.columns, size.lines
    return None
