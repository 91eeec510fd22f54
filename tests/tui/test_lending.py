"""The whole terminal, lent to what runs in a sandbox and taken back, on a real one with real sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.on_terminal import sbx_on_terminal
from tests.support.sbx import Sbx, sbx_home

pytestmark = pytest.mark.slow


@pytest.fixture
def sbx(tmp_path: Path) -> Iterator[Sbx]:
    """A home with one running sandbox."""
    with sbx_home(tmp_path / "home") as own:
        own.ok("create", "app", "--memory", "512")
        yield own


def test_a_full_screen_program_gets_the_terminal_and_the_dashboard_comes_back(sbx: Sbx) -> None:
    # It listens to no interrupt, so that the second one, which kills, is always needed.
    draws = "trap '' INT; printf '\\033[?1049h'; stty raw -echo; echo dr''awn; "
    draws += "while k=$(head -c1); do echo k''ey-$k-; done"
    with sbx_on_terminal(sbx, "tui", size=(100, 30)) as terminal:
        before = terminal.modes()
        terminal.see(b"+ running")
        terminal.type(b"e" + draws.encode() + b"\r")
        terminal.see(b"enter lends yours")
        terminal.type(b"\r")
        terminal.see(b"\x1b[?1049l")
        # Typed at once: before the other program is up.
        terminal.type(b"A")
        terminal.see(b"key-A-")
        terminal.type(b"B")
        terminal.see(b"key-B-")
        terminal.type(b"\x1d")
        terminal.see(b"\x1b[?1049h")
        terminal.see(b"Sandboxes")
        terminal.see(b"left job")
        terminal.type(b"\x03")
        terminal.type(b"\x03")
        terminal.see(b"ended by KILL")
        terminal.type(b"echo st''ill here\r")
        terminal.see(b"still here")
        terminal.type(b"\x1b")
        terminal.see(b" remove ")
        terminal.type(b"q")
        assert terminal.wait() == 0
        assert terminal.modes() == before
    assert [job["state"] for job in sbx.ok("jobs", "app", "--all", "--json").json] == ["exited", "exited"]
