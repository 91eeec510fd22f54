"""What somebody meets who uses `sbx` for the first time, in one shared sandbox."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.on_terminal import sbx_on_terminal
from tests.support.sbx import Sbx

_ODD = "two  blanks \x1b[31mred"
_LONG = "echo " + "x" * 900


def _without_input(sbx: Sbx, *words: str) -> subprocess.CompletedProcess[bytes]:
    line = [*("sh", "-c", 'exec "$@" <&-', "sh"), *(sys.executable, "-m", "sbxtui"), *words]
    return subprocess.run(line, env=sbx.environment(), capture_output=True, timeout=60, check=False)


def test_a_closed_standard_input_is_an_empty_one(sbx: Sbx, app: str) -> None:
    assert _without_input(sbx, "exec", "-i", app, "--", "wc", "-c").stdout.strip() == b"0"
    assert _without_input(sbx, "fs", "write", app, "empty").returncode == 0
    assert sbx.ok("fs", "cat", app, "empty").stdout == b""


def test_quiet_names_are_what_other_verbs_take_and_harmless_on_a_terminal(sbx: Sbx, app: str) -> None:
    sbx.ok("fs", "mkdir", app, "odd")
    sbx.ok("fs", "write", app, f"odd/{_ODD}")
    assert sbx.ok("fs", "ls", "-q", app, "odd").stdout == _ODD.encode() + b"\n"
    assert sbx.ok("fs", "stat", "-q", app, f"odd/{_ODD}").out.endswith(_ODD)
    with sbx_on_terminal(sbx, "fs", "ls", "-q", app, "odd") as terminal:
        terminal.see(b"two  blanks red\r\n")


def test_a_folder_is_listed_within_the_terminal(sbx: Sbx, app: str) -> None:
    sbx.ok("fs", "mkdir", app, "deep")
    sbx.ok("fs", "write", app, "deep/" + "n" * 60)
    with sbx_on_terminal(sbx, "fs", "ls", app, "deep", size=(40, 24)) as terminal:
        terminal.see(b"`--wide` shows all")
        assert terminal.wait() == 0
        lines = terminal.seen.decode().split("\r\n")
    assert all(len(line) <= 40 for line in lines if not line.startswith("note:")), lines
    assert "n" * 60 in sbx.ok("fs", "ls", app, "deep").out


@pytest.mark.parametrize("words", [["--wide"], []])
def test_commands_are_listed_whole_where_nothing_is_to_fit(sbx: Sbx, app: str, words: list[str]) -> None:
    sbx.ok("exec", app, "--", "sh", "-c", _LONG)
    assert _LONG in sbx.ok("jobs", "--all", *words).out
