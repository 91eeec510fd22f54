"""The dashboard on a real terminal: what it writes, and how it leaves."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path

import pytest

from sbxtui.settings import Settings
from sbxtui.tui.terminal import LosableFile
from tests.architecture.source import ROOT
from tests.support.fake_services import FakeCloud, FakeServices, home_at
from tests.tui.driving import tab_key
from tests.tui.terminal_app import HOSTILE

DEADLINE_S = 60.0
_PAUSE_S = 0.3
_LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"
_SHOW_CURSOR = b"\x1b[?25h"
_ALTERNATE_SCREEN = b"\x1b[?1049h"
_LFLAG = 3


@dataclass(slots=True)
class Terminal:
    """A dashboard on a pseudo-terminal of 100x30, and everything it wrote."""

    process: subprocess.Popen[bytes]
    master: int
    slave: int
    before: list[object]
    written: bytearray = field(default_factory=bytearray)

    def read_until(self, wanted: bytes) -> None:
        """Read until `wanted` was written since the last call of `send`."""
        deadline = time.monotonic() + DEADLINE_S
        while wanted not in self.written[self._from :]:
            assert time.monotonic() < deadline, bytes(self.written[-2_000:])
            self._read(0.1)

    def wait_for_quiet(self) -> None:
        """Wait until what is typed is not shown any more."""
        deadline = time.monotonic() + DEADLINE_S
        while termios.tcgetattr(self.slave)[_LFLAG] & termios.ECHO:
            assert time.monotonic() < deadline and self.process.poll() is None
            self._read(0.001)

    def settle(self) -> None:
        """Read until nothing more comes for a moment, as a person waits before the next key."""
        while select.select([self.master], [], [], _PAUSE_S)[0]:
            self._read(0)

    def send(self, keys: str) -> None:
        """Type keys."""
        self._from = len(self.written)
        os.write(self.master, keys.encode())

    _from: int = 0

    def wait(self) -> int:
        """Read until the program ends; its exit code."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "the dashboard does not end"
            self._read(0.1)
        self._read(0)
        return self.process.returncode

    def is_restored(self) -> bool:
        """Whether the terminal is as it was found."""
        left = self.written.rfind(_LEAVE_ALTERNATE_SCREEN) > self.written.rfind(_ALTERNATE_SCREEN) >= 0
        return left and _SHOW_CURSOR in self.written and termios.tcgetattr(self.slave) == self.before

    def _read(self, timeout_s: float) -> None:
        while select.select([self.master], [], [], timeout_s)[0]:
            self.written += os.read(self.master, 65_536)
            timeout_s = 0


@contextmanager
def terminal(home: Path, *options: str, is_opened: bool = True, **variables: str) -> Iterator[Terminal]:
    """The dashboard with its first live rows on screen; ended afterwards if it still runs.

    Where not `is_opened`, it has only just made the terminal quiet.
    """
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    before = termios.tcgetattr(slave)
    env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    env.pop("NO_COLOR", None)
    env.update(variables)
    command = [sys.executable, "-m", "tests.tui.terminal_app", str(home), *options]
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, cwd=ROOT, env=env
    )
    try:
        found = Terminal(process, master, slave, before)
        if is_opened:
            found.read_until(b" live ")
        else:
            found.wait_for_quiet()
        yield found
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for descriptor in (master, slave):
            os.close(descriptor)


def test_it_opens_shows_rows_and_leaves_the_terminal_as_it_found_it(tmp_path: Path) -> None:
    with terminal(tmp_path) as term:
        assert b"web" in term.written
        term.send("q")
        assert term.wait() == 0
        assert term.is_restored()


def test_what_is_typed_while_it_opens_is_not_shown_and_is_done_once_it_is_there(tmp_path: Path) -> None:
    with terminal(tmp_path, is_opened=False) as term:
        term.send("e42\r")
        term.read_until(b"ran 42")
        assert b"e42" not in term.written[: term.written.find(_ALTERNATE_SCREEN)]
        term.settle()
        term.send("\x1b")
        term.read_until(b"1 Overview")
        term.send("q")
        assert term.wait() == 0
        assert term.is_restored()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ended_while_it_opens_it_gives_the_terminal_back(tmp_path: Path, number: signal.Signals) -> None:
    with terminal(tmp_path, is_opened=False) as term:
        term.process.send_signal(number)
        assert term.wait() != 0
        assert termios.tcgetattr(term.slave) == term.before


def test_a_hang_up_ends_it_with_the_terminal_restored(tmp_path: Path) -> None:
    with terminal(tmp_path) as term:
        term.process.send_signal(signal.SIGHUP)
        assert term.wait() == 128 + signal.SIGHUP
        assert term.is_restored()


def test_a_terminal_that_goes_away_ends_it(tmp_path: Path) -> None:
    with terminal(tmp_path) as term:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, term.slave)
        os.dup2(null, term.master)
        os.close(null)
        assert term.process.wait(DEADLINE_S) == 128 + signal.SIGHUP


# Keys, and what is drawn of what they show: facts, jobs, what a job says, files, a file, dialogs, the record.
_EVERY_TEXT = (
    ("\x1b", b"actions"),
    (f"{tab_key('overview')}", b"isolation"),
    (f"{tab_key('jobs')}\t", b"actor"),
    ("i", b"A job"),
    ("\x1b", b"follow"),
    ("k", b"Signal job"),
    ("\x1b", b"follow"),
    ("\r", b"said by command"),
    ("\x1b", b"1 running in"),
    (tab_key("files"), b"src"),
    ("\r", b"named"),
    ("j\r", b"end-of-file"),
    ("w", b"Download"),
    ("\x1b", b"esc closes it"),
    ("\x1b", b"api:/work"),
    ("d", b"Delete in"),
    ("n", b"download"),
    ("\x1b", b"pause"),
    ("d", b"ends `"),
    ("n", b"pause"),
    ("i", b"record"),
    ("\x1b", b"pause"),
    ("y", b"Copy"),
    ("\x1b", b"pause"),
)


@pytest.mark.long
def test_what_a_sandbox_says_reaches_the_terminal_as_text_only(tmp_path: Path) -> None:
    with terminal(tmp_path) as term:
        term.send("gehello\r")
        term.read_until(b"end-of-output")
        for keys, seen in _EVERY_TEXT:
            # Escape alone is a key only when nothing follows it at once, and what is seen may be of the screen before.
            term.settle()
            term.send(keys)
            term.read_until(seen)
        term.settle()
        term.send("q")
        assert term.wait() == 0
        written = bytes(term.written)
        assert re.search(rb"\x1b\](52|0|2);", written) is None
        assert b"\x1b[2J" not in written
        assert "\x9b".encode() not in written and "\u202e".encode() not in written


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("osc9", rb"\x1b\]9;([^\x07]*)\x07"),
        ("osc777", rb"\x1b\]777;notify;sbx;([^\x07]*)\x07"),
        ("bell", rb"\x07()"),
    ],
)
def test_trouble_is_told_to_the_terminal_and_no_word_of_it_is_a_command(tmp_path: Path, how: str, told: bytes) -> None:
    with terminal(tmp_path, f"notify={how}") as term:
        term.settle()
        term.send("")
        before = len(term.written)
        somewhere = FakeServices(Settings(home=home_at(tmp_path)), FakeCloud())
        somewhere.events.record(
            context="local",
            kind="trouble.link",
            subject=f"api{HOSTILE}",
            actor="watch",
            data={"reason": f"first; \x1b\\second\x07 \x1b]777;notify;x;y\x07 {HOSTILE} {'long ' * 100}"},
        )
        somewhere.close()
        term.read_until(b"\x07")
        term.settle()
        term.send("q")
        assert term.wait() == 0
        # Textual says which shape the mouse has.
        written = re.sub(rb"\x1b\]22;[a-z-]*\x07", b"", bytes(term.written[before:]))
        [words] = re.findall(told, written)
        # One terminal command in all, and in its words nothing that ends it, begins another or is another part of it.
        assert written.count(b"\x07") == 1 and written.count(b"\x1b]") == (how != "bell")
        assert words.decode().isprintable() and b";" not in words and len(words) < 200
        assert how == "bell" or (words.startswith(b"api") and b"its sync halted: first, second" in words)


def test_keys_that_arrive_in_one_burst_go_where_each_belongs(tmp_path: Path) -> None:
    with terminal(tmp_path) as term:
        term.send("edypq\r")
        term.read_until(b"ran dypq")
        term.send("\x1b")
        term.read_until(b"1 Overview")
        assert term.process.poll() is None


def test_a_defect_ends_it_with_a_report_and_shows_no_values(tmp_path: Path) -> None:
    with terminal(tmp_path, "defect") as term:
        term.send("s")
        assert term.wait() == 1
        assert term.is_restored()
        shown = bytes(term.written[term.written.rfind(_LEAVE_ALTERNATE_SCREEN) :]).decode()
    [report] = (tmp_path / "logs").glob("crash-*.txt")
    assert "the dashboard crashed (RuntimeError)" in shown and report.name in shown.replace("\r\n", "")
    assert "hunter2" not in shown and "hunter2" not in report.read_text()


def test_what_is_drawn_after_the_terminal_went_away_is_dropped_and_told_once() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    told: list[str] = []
    with suppress(BrokenPipeError), os.fdopen(writer, "w", buffering=1) as pipe:
        file = LosableFile(pipe, lambda: told.append("lost"))
        for _ in range(3):
            file.write("drawn\n")
            file.flush()
    assert told == ["lost"]


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(tmp_path: Path) -> None:
    with terminal(tmp_path) as term:
        term.send("\x1a")
        term.read_until(_LEAVE_ALTERNATE_SCREEN)
        while not _is_stopped(term.process.pid):
            assert term.process.poll() is None
        term.process.send_signal(signal.SIGCONT)
        term.read_until(b"Sandboxes")
        term.send("q")
        assert term.wait() == 0
        assert term.is_restored()


def test_a_storm_of_sizes_leaves_it_working(tmp_path: Path) -> None:
    with terminal(tmp_path) as term:
        for rows, columns in [(24, 80), (1, 1), (100, 300), (9, 39), (15, 60)] * 6:
            ioctl(term.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            term.process.send_signal(signal.SIGWINCH)
        ioctl(term.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        term.process.send_signal(signal.SIGWINCH)
        term.send("?")
        term.read_until(b"esc closes")
        term.send("\x1b")
        term.read_until(b"1 Overview")
        term.send("q")
        assert term.wait() == 0


def test_the_same_size_again_draws_everything_anew(tmp_path: Path) -> None:
    with terminal(tmp_path) as term:
        # The terminal was another size in between, told or not, and cut off what did not fit.
        for told in ((), ((3, 10), (30, 100))):
            term.settle()
            term.send("")
            for rows, columns in told:
                ioctl(term.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            term.process.send_signal(signal.SIGWINCH)
            term.read_until(b"Sandboxes")
            term.read_until(b"1 Overview")
            # A line feed would scroll a terminal that is lower than the frame by now.
            assert b"\n" not in term.written[: term.written.rfind(b"1 Overview")]
        term.send("q")
        assert term.wait() == 0


def test_without_colour_none_is_drawn(tmp_path: Path) -> None:
    with terminal(tmp_path, NO_COLOR="1") as term:
        term.send("q")
        term.wait()
        colours = [
            code
            for found in re.findall(rb"\x1b\[([0-9;]*)m", bytes(term.written))
            for code in re.findall(rb"(?:38|48);2;(\d+);(\d+);(\d+)", found)
        ]
        assert all(red == green == blue for red, green, blue in colours)


def test_ascii_glyphs_draw_ascii_only(tmp_path: Path) -> None:
    with terminal(tmp_path, "ascii") as term:
        term.send("?")
        term.read_until(b"esc closes")
        term.send("\x1b")
        term.read_until(b"1 Overview")
        term.send("q")
        term.wait()
        assert bytes(term.written).isascii()


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
