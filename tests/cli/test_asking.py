"""Questions at a terminal, and no terminal to ask at."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.on_terminal import OnTerminal, sbx_on_terminal
from tests.support.sbx import Sbx, sbx_home

_QUESTION = b"remove context `kept`? [y/N] "
# What follows a question in the same terminal, as a person's shell does.
_AFTERWARDS = 'echo "code $?"; stty -a | grep -c " icanon .* echo "; read -r line; echo "next: $line"'


@pytest.fixture(scope="module")
def sbx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sbx]:
    with sbx_home(tmp_path_factory.mktemp("home")) as own:
        own.ok("context", "add", "kept", "--region", "us-east-1")
        yield own


@contextmanager
def _asked(sbx: Sbx) -> Iterator[OnTerminal]:
    line = f"{sbx.command} context rm kept; {_AFTERWARDS}"
    terminal = OnTerminal(["bash", "-c", line], {**sbx.environment(), "TERM": "xterm"}, sbx.home, (91, 33))
    try:
        terminal.see(_QUESTION)
        yield terminal
    finally:
        terminal.close()


def test_ctrl_c_at_a_question_ends_it_at_once_and_leaves_what_is_typed_next(sbx: Sbx) -> None:
    with _asked(sbx) as terminal:
        terminal.type(b"\x03")
        terminal.see(b"^C\r\nerror: interrupted\r\ncode 130\r\n1\r\n")
        terminal.type(b"my next command\n")
        terminal.see(b"next: my next command")
    assert "kept" in sbx.ok("context", "ls", "-q").out.split()


def test_a_signal_that_ends_us_ends_a_question(sbx: Sbx) -> None:
    with sbx_on_terminal(sbx, "context", "rm", "kept") as terminal:
        terminal.see(_QUESTION)
        terminal.process.terminate()
        assert terminal.wait() == 143


@pytest.mark.parametrize(("typed", "code"), [(b"\n", 2), (b"\x04", 2), (b"no\n", 2), (b"YES\n", 0)])
def test_only_a_yes_is_a_yes(sbx: Sbx, typed: bytes, code: int) -> None:
    with _asked(sbx) as terminal:
        terminal.type(typed)
        terminal.see(f"code {code}\r\n".encode())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["context", "rm", "kept"], 2, "hint: add --yes"),
        (["shell", "nothing"], 125, "our input is not a terminal"),
        (["exec", "-i", "nothing", "--", "cat"], 125, "no sandbox"),
    ],
)
def test_a_closed_standard_input_is_an_empty_one(sbx: Sbx, words: list[str], code: int, said: str) -> None:
    sbx("context", "add", "kept", "--region", "us-east-1")
    line = 'exec "$@" <&-'
    done = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "sbxtui", *words],
        env=sbx.environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr.decode()
