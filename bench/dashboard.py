"""The dashboard on a terminal: its first frame, what it costs when nothing happens, and with many rows that change."""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.support import SBX, Row, bench_home, interleaved, ratio_row

_ROOT = Path(__file__).resolve().parents[1]
_SETTLE_S = 3.0
_MEASURED_S = 10.0
# Until then ages are told in seconds, and drawn as often.
_REST_S = 62.0
_START_DEADLINE_S = 60.0
_ROUNDS = 5
_COUNTS = (500, 5_000)
_KEYS = 60
_KEY_PAUSE_S = 0.13
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[ -/]*[0-~])", re.DOTALL)

# What textual costs without us: one text, which tells how many keys were pressed.
EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    keys = 0
    def compose(self):
        yield Static("ready " * 60)
    def on_key(self):
        self.keys += 1
        self.query_one(Static).update(f"{self.keys} " + "ready " * 60)
Empty().run()
"""
AN_EMPTY_APP = "an empty textual app"

# Sandboxes, of which three in ten have another state at every look, once a second; nothing but the cloud is pretended.
_BUSY = """
import itertools, pathlib, sys
from dataclasses import replace
from sbxtui.core.model import SandboxState
from sbxtui.settings import Settings
from sbxtui.tui.app import run_dashboard
from tests.support.fake_services import FakeCloud, home_at, sandbox, services_for
class Busy(FakeCloud):
    turn = itertools.count()
    @property
    def sandboxes(self):
        return self.rows[next(self.turn) % 2]
    @sandboxes.setter
    def sandboxes(self, rows):
        rows = [sandbox(f"s{number:04}") for number in range(int(sys.argv[2]))]
        stopped = [replace(one, state=SandboxState.SUSPENDED) if at % 10 < 3 else one for at, one in enumerate(rows)]
        self.rows = [rows, stopped]
root = pathlib.Path(sys.argv[1])
run_dashboard(Settings(home=home_at(root)), services_for(root, Busy()))
"""


def run() -> list[Row]:
    """Rows of all dashboard figures; takes about three minutes."""
    empty = [sys.executable, "-c", EMPTY]
    with bench_home() as home:
        home.sbx("create", "bench", "--memory", "512")
        first_s, empty_first_s = interleaved(
            lambda: _first_frame_s(SBX, home.env, b"bench"),
            lambda: _first_frame_s(empty, home.env, b"ready"),
            rounds=_ROUNDS,
        )
        young = _cpu_share(SBX, home.env, b"live")
        idle = _cpu_share(SBX, home.env, b"live", rest_s=_REST_S)
        empty_idle = _cpu_share(empty, home.env, b"ready")
        env = {**home.env, "PYTHONPATH": str(_ROOT)}
        busy = {
            count: [sys.executable, "-c", _BUSY, str(home.folder / f"busy{count}"), str(count)] for count in _COUNTS
        }
        loads = {count: measured_load(command, env, b"live") for count, command in busy.items()}
        empty_load = measured_load(empty, home.env, b"ready")
    return [
        ratio_row("first frame with cached rows", first_s, empty_first_s, AN_EMPTY_APP),
        cpu_row("idle, one sandbox in its first minute", young, empty_idle),
        cpu_row("idle, one sandbox that nothing happens to", idle, empty_idle),
        *(row for count, load in loads.items() for row in _load_rows(count, load, empty_load)),
    ]


@dataclass(frozen=True, slots=True)
class Load:
    """What a program under load costs: processor share, memory, and the times from keys to their echoes."""

    cpu: float
    rss_bytes: int
    echoes_s: Sequence[float]

    @property
    def echo_p95_s(self) -> float:
        """All but one key in twenty were echoed in this time."""
        return sorted(self.echoes_s)[int(len(self.echoes_s) * 0.95)]


def _load_rows(count: int, load: Load, empty: Load) -> list[Row]:
    memory = f"{mib(empty.rss_bytes)} {AN_EMPTY_APP}, {load.rss_bytes / empty.rss_bytes:.2f} ×"
    echo = f"{count:,} rows: a key's echo, p95 of {len(load.echoes_s)}"
    return [
        cpu_row(f"{count:,} rows, {count * 3 // 10:,} changing every second", load.cpu, empty.cpu),
        (f"{count:,} rows: memory", mib(load.rss_bytes), memory),
        ratio_row(echo, load.echo_p95_s, empty.echo_p95_s, AN_EMPTY_APP),
    ]


def cpu_row(what: str, share: float, empty_share: float) -> Row:
    """A row for two shares of a core; the other may have cost less than can be measured."""
    ratio = f", {share / empty_share:.1f} ×" if empty_share else ""
    return (what, percent(share), f"{percent(empty_share)} {AN_EMPTY_APP}{ratio}")


def measured_load(
    command: Sequence[str],
    env: Mapping[str, str],
    wanted: bytes,
    *,
    keys: bytes = b"",
    answers: Sequence[tuple[bytes, bytes]] = (),
) -> Load:
    """Measure a program that works: first left alone, then with a key pressed several times a second.

    Args:
        command: The program.
        env: Its environment.
        wanted: What it shows once it works.
        keys: Pressed then, before anything is measured.
        answers: Keys in turns, each with what it has shown, for a program that draws all the time; else any drawing
            is a key's echo.
    """
    with _on_terminal(command, env) as (child, master):
        _drain(master, _START_DEADLINE_S, wanted)
        if keys:
            os.write(master, keys)
        _drain(master, _SETTLE_S)
        before_s, began = cpu_s(child.pid), time.perf_counter()
        _drain(master, _MEASURED_S)
        cpu = (cpu_s(child.pid) - before_s) / (time.perf_counter() - began)
        asked = itertools.cycle(answers or [(b"j", b"")])
        echoes_s = [_echo_s(master, *next(asked)) for _ in range(_KEYS)]
        pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
        return Load(cpu, pages * os.sysconf("SC_PAGE_SIZE"), echoes_s)


def _echo_s(master: int, key: bytes, shown: bytes) -> float:
    """Seconds from a key to what it has shown, or to the next thing drawn, in a quiet moment."""
    _drain(master, _KEY_PAUSE_S)
    began = time.perf_counter()
    os.write(master, key)
    if shown:
        _drain(master, _START_DEADLINE_S, shown)
    else:
        select.select([master], [], [], _START_DEADLINE_S)
    return time.perf_counter() - began


def mib(size_bytes: int) -> str:
    """A size as a cell."""
    return f"{size_bytes / 2**20:.0f} MiB"


@contextmanager
def _on_terminal(command: Sequence[str], env: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A program on a terminal of its own of 160x48; killed afterwards."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 160, 0, 0))
    on_terminal = {**env, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    child = subprocess.Popen(command, env=on_terminal, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    try:
        yield child, master
    finally:
        child.kill()
        child.wait()
        os.close(master)


def _first_frame_s(command: Sequence[str], env: Mapping[str, str], wanted: bytes) -> float:
    """Seconds from the start of the process until `wanted` stands on its terminal."""
    began = time.perf_counter()
    with _on_terminal(command, env) as (_, master):
        _drain(master, _START_DEADLINE_S, wanted)
        return time.perf_counter() - began


def _cpu_share(command: Sequence[str], env: Mapping[str, str], wanted: bytes, *, rest_s: float = _SETTLE_S) -> float:
    """Processor time over wall time of the program alone, once it shows `wanted` and came to rest."""
    with _on_terminal(command, env) as (child, master):
        _drain(master, _START_DEADLINE_S, wanted)
        _drain(master, rest_s)
        before_s, began = cpu_s(child.pid), time.perf_counter()
        _drain(master, _MEASURED_S)
        return (cpu_s(child.pid) - before_s) / (time.perf_counter() - began)


def _drain(terminal: int, duration_s: float, wanted: bytes = b"") -> None:
    """Read for `duration_s`, or until `wanted` came; raises RuntimeError when that never does."""
    deadline = time.perf_counter() + duration_s
    seen = b""
    while (now := time.perf_counter()) < deadline:
        if select.select([terminal], [], [], deadline - now)[0]:
            seen += os.read(terminal, 65_536)
            if wanted and wanted in _ESCAPES.sub(b"", seen):
                return
    if wanted:
        raise RuntimeError(f"{wanted!r} was never drawn: {seen[-200:]!r}")


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    user_ticks, system_ticks = stat.rpartition(")")[2].split()[11:13]
    return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")


def percent(share: float) -> str:
    """A share of a core as a cell."""
    return f"{share * 100:.1f} % CPU"
