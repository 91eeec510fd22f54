"""A program on a real terminal of its own, and a person who types at it and looks at what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.sbx import Sbx

LIMIT_S = 60.0


class OnTerminal:
    """A running program whose standard streams are the slave of a pty."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, size: tuple[int, int]) -> None:
        self.master, self._slave = pty.openpty()
        self.resize(*size)
        self.seen = b""
        self._at = 0
        self.process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, cols: int, rows: int) -> None:
        """Drag the window's corner."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text: bytes) -> None:
        """Type."""
        os.write(self.master, text)

    def see(self, text: bytes, *, limit_s: float = LIMIT_S) -> bytes:
        """Wait until `text` is shown behind what was seen before; returns everything up to and with it."""
        deadline = time.monotonic() + limit_s
        while (found := self.seen.find(text, self._at)) < 0:
            assert self._read(deadline - time.monotonic()), f"{text!r} is not in {self.seen[self._at :]!r}"
        start, self._at = self._at, found + len(text)
        return self.seen[start : self._at]

    @property
    def is_raw(self) -> bool:
        """Whether every key is passed on as it is."""
        return not termios.tcgetattr(self._slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def modes(self) -> list[object]:
        """All of the terminal's settings."""
        return list(termios.tcgetattr(self._slave))

    def until_raw(self, *, is_raw: bool = True) -> None:
        """Wait until the program took the terminal over, or gave it back."""
        deadline = time.monotonic() + LIMIT_S
        while self.is_raw != is_raw:
            assert time.monotonic() < deadline, self.seen
            self._read(0.02)

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._slave)
        os.close(self.master)
        self.master = self._slave = -1

    def wait(self, *, limit_s: float = LIMIT_S) -> int:
        """Read on until the program has ended; its exit code."""
        deadline = time.monotonic() + limit_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen[-2000:]
            if self.master >= 0:
                self._read(0.05)
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.05)
        while self.master >= 0 and self._read(0.05):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End the program, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.master >= 0:
            self.hang_up()

    def _read(self, wait_s: float) -> bool:
        if not select.select([self.master], [], [], max(0.0, wait_s))[0]:
            return False
        with contextlib.suppress(OSError):
            self.seen += os.read(self.master, 65_536)
            return True
        return False


@contextmanager
def sbx_on_terminal(
    sbx: Sbx, *words: str, size: tuple[int, int] = (91, 33), term: str = "xterm-256color"
) -> Iterator[OnTerminal]:
    """A line of `sbx` on a terminal of `size` columns and rows; killed afterwards if it still runs."""
    command = [sys.executable, "-m", "sbxtui", *words]
    terminal = OnTerminal(command, {**sbx.environment(), "TERM": term}, sbx.cwd or sbx.home, size)
    try:
        yield terminal
    finally:
        terminal.close()


def follows_its_window_and_is_interrupted(terminal: OnTerminal) -> None:
    """A shell there hears of its window's new size, and Ctrl-C ends what it runs."""
    terminal.resize(120, 40)
    terminal.type(b"until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo re''sized\r")
    terminal.see(b"resized")
    # Pressed while the shell has yet to start it, the key is the shell's and ends nothing.
    terminal.type(b"sh -c \"echo sle''eping; exec sleep 100\"\r")
    terminal.see(b"sleeping")
    terminal.type(b"\x03")
