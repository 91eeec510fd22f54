"""The terminal from the program's start to the dashboard's first frame: what is typed waits for that, unseen."""

from __future__ import annotations

import contextlib
import signal
import sys
import termios
from collections.abc import Iterator
from types import FrameType
from typing import Any

# As `termios.tcgetattr` tells it.
Attributes = list[Any]
_IFLAG, _LFLAG, _CC = 0, 3, 6
_NO_CHARACTER = b"\0"


@contextlib.contextmanager
def quiet_terminal() -> Iterator[Attributes | None]:
    """Keep what is typed for the dashboard, key by key; Ctrl-C still ends the program.

    As it was found, the terminal is again in the end, whatever that is: SIGTERM and SIGHUP, too.

    Yields:
        The terminal as it was found; None where that is not told.
    """
    assert sys.__stdin__ is not None, "only a terminal is made quiet"
    descriptor = sys.__stdin__.fileno()
    try:
        found = termios.tcgetattr(descriptor)
    except termios.error:
        yield None
        return
    numbers = [one for one in (signal.SIGHUP, signal.SIGTERM) if signal.getsignal(one) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _end)
    try:
        termios.tcsetattr(descriptor, termios.TCSANOW, _quiet(termios.tcgetattr(descriptor)))
        yield found
    finally:
        # What cannot be given back is gone.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, found)
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _quiet(attributes: Attributes) -> Attributes:
    """The same without echo and without waiting for lines; enter stays the key it is."""
    attributes[_LFLAG] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    attributes[_IFLAG] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON)
    attributes[_CC][termios.VMIN] = 1
    # Stopped now, it would leave its shell a terminal without echo.
    attributes[_CC][termios.VSUSP] = _NO_CHARACTER
    return attributes


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
