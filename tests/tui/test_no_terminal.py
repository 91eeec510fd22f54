"""Where nobody can see or type, `sbx` prints the list and `sbx tui` says why it does not open."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.support.sbx import DEADLINE_S, Sbx

STREAMS = ("stdin", "stdout", "stderr")


def on_terminal(sbx: Sbx, *words: str, away: str = "", term: str = "xterm-256color") -> tuple[int, bytes]:
    """Run `sbx` with its streams on a terminal, but `away`; its code and all that it wrote."""
    master, slave = pty.openpty()
    streams = {name: subprocess.PIPE if name == away else slave for name in STREAMS}
    try:
        process = subprocess.Popen(  # type: ignore[call-overload]  # streams by name
            [sys.executable, "-m", "sbxtui", *words],
            env={**sbx.environment(), "TERM": term},
            cwd=sbx.home,
            start_new_session=True,
            **streams,
        )
        out, err = process.communicate(timeout=DEADLINE_S)
        os.set_blocking(master, False)
        try:
            drawn = os.read(master, 65_536)
        except BlockingIOError:
            drawn = b""
        return process.returncode, drawn + (out or b"") + (err or b"")
    finally:
        os.close(slave)
        os.close(master)


@pytest.mark.parametrize("away", STREAMS)
def test_one_stream_elsewhere_is_enough_to_print_the_list(away: str, sbx: Sbx) -> None:
    code, written = on_terminal(sbx, away=away)
    assert (code, b"\x1b" in written) == (0, False)


def test_a_dumb_terminal_gets_the_list(sbx: Sbx) -> None:
    code, written = on_terminal(sbx, term="dumb")
    assert (code, b"\x1b" in written) == (0, False)


def test_the_dashboard_by_name_says_why_it_cannot_open(sbx: Sbx) -> None:
    refused = sbx("tui")
    assert (refused.code, refused.out) == (2, "")
    assert "needs a terminal" in refused.err and "hint: `sbx ls`" in refused.err
    assert "\x1b" not in refused.err
    assert on_terminal(sbx, "tui", term="dumb")[0] == 2


def test_the_list_is_json_where_it_is_asked_for(sbx: Sbx) -> None:
    assert sbx.ok("--json").json == []
