"""The dashboard is killed while it works; what it began is finished by whoever looks next."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.sbx import DEADLINE_S, Sbx

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REGISTRY = "sbxtui.store.registry:Registry"
CONTROL = "sbxtui.control.api:ControlApi"

# Point, and the state the sandbox must be in afterwards.
CREATE_POINTS = [f"{REGISTRY}.reserve:after", f"{CONTROL}.run:after", f"{REGISTRY}.bind:after"]
PAUSE_POINTS = [f"{CONTROL}.suspend:before", f"{CONTROL}.suspend:after"]


@dataclass(frozen=True, slots=True)
class Screen:
    """A dashboard on a terminal of its own."""

    process: subprocess.Popen[bytes]
    terminal: int

    def until(self, words: bytes) -> None:
        """Read what is drawn until `words` were."""
        seen = b""
        while words not in seen:
            seen += os.read(self.terminal, 1 << 16)

    def keys(self, keys: str) -> None:
        """Press keys."""
        os.write(self.terminal, keys.encode())

    def drain(self) -> None:
        """Read until the other side is gone, so that it never waits for us."""
        try:
            while os.read(self.terminal, 1 << 16):
                pass
        except OSError:
            return


@contextmanager
def doomed_dashboard(sbx: Sbx, point: str) -> Iterator[Screen]:
    """A dashboard that dies at `point`."""
    terminal, far_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.killed_at", point, "sbxtui", "tui"],
        cwd=ROOT,
        env={**sbx.environment(), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
        stdin=far_end,
        stdout=far_end,
        stderr=far_end,
        start_new_session=True,
    )
    os.close(far_end)
    screen = Screen(process, terminal)
    try:
        yield screen
        screen.drain()
        assert process.wait(DEADLINE_S) == -signal.SIGKILL, f"{point} was not reached"
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def states(sbx: Sbx) -> dict[str, str]:
    """Name (or id of an untracked machine) → state."""
    return {row["name"] or row["id"]: row["state"] for row in sbx.ok("ls", "--json").json}


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_a_dashboard_killed_while_it_creates_still_gives_the_sandbox(sbx: Sbx, point: str) -> None:
    with doomed_dashboard(sbx, point) as screen:
        screen.until(b"Sandboxes")
        screen.keys("n")
        screen.until(b"enter makes it")
        screen.keys("wished\r")
    assert states(sbx) == {"wished": "RUNNING"}
    assert sbx.ok("exec", "wished", "--", "echo", "here").out == "here"
    sbx.ok("rm", "wished", "--yes")


@pytest.mark.parametrize("point", PAUSE_POINTS)
def test_a_dashboard_killed_while_it_pauses_loses_nothing(sbx: Sbx, point: str) -> None:
    sbx.ok("create", "kept", "-m", "512")
    with doomed_dashboard(sbx, point) as screen:
        screen.until(b"live")
        screen.keys("p")
    assert states(sbx)["kept"] in ("RUNNING", "SUSPENDED")
    sbx.ok("start", "kept")
    assert sbx.ok("exec", "kept", "--", "echo", "here").out == "here"
    sbx.ok("rm", "kept", "--yes")
