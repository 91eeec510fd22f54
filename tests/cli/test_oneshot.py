"""A sandbox for one command on a person's terminal: lent, sized, given back, and nothing is left."""

from __future__ import annotations

import os
import signal

import pytest

from tests.support.on_terminal import OnTerminal, follows_its_window_and_is_interrupted, sbx_on_terminal
from tests.support.sbx import Sbx

RUN = ("run", "-it", "-m", "512")


def _until_up(terminal: OnTerminal) -> None:
    terminal.see(b"up")
    terminal.until_raw()


def _is_removed(sbx: Sbx, name: str) -> bool:
    """Whether it is gone after a look; the runner may be at it at the same time."""
    return any(name not in {one["name"] for one in sbx.ok("ls", "--json").json} for _ in range(40))


def test_a_one_shot_on_a_terminal_is_typed_into_resized_and_removed(sbx: Sbx) -> None:
    with sbx_on_terminal(sbx, *RUN, "--name", "once", "--", "sh", size=(91, 33)) as terminal:
        before = terminal.modes()
        terminal.until_raw()
        terminal.type(b"stty size; test -t 0 && echo it''s mine\r")
        terminal.see(b"33 91")
        terminal.see(b"its mine")
        follows_its_window_and_is_interrupted(terminal)
        terminal.type(b"exit 5\r")
        assert terminal.wait() == 5
        assert terminal.modes() == before
    assert _is_removed(sbx, "once")


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "code"), [("leave", 130), ("hang up", 129), ("TERM", 143), ("KILL", -9), ("ctrl-c is a key", 3)]
)
def test_however_a_one_shot_on_a_terminal_is_left_it_is_removed(sbx: Sbx, how: str, code: int) -> None:
    name = f"left-{abs(code)}"
    line = "trap 'n=$((n+1)); echo key $n; [ $n = 2 ] && exit 3' INT; echo up; while :; do sleep 0.05; done"
    with sbx_on_terminal(sbx, *RUN, "--name", name, "--", "sh", "-c", line) as terminal:
        _until_up(terminal)
        match how:
            case "leave":
                terminal.type(b"\x1d")
            case "hang up":
                terminal.hang_up()
            case "TERM" | "KILL":
                terminal.process.send_signal(signal.Signals[f"SIG{how}"])
            case _:
                terminal.type(b"\x03")
                terminal.see(b"key 1")
                terminal.type(b"\x03")
        assert terminal.wait() == code
        if how in ("leave", "TERM"):
            terminal.see(b"was removed with all that ran in it")
    assert _is_removed(sbx, name)


@pytest.mark.long
def test_a_one_shot_with_a_terminal_and_nobody_at_it_is_output_alone(sbx: Sbx) -> None:
    result = sbx.ok("run", "-t", "-m", "512", "--", "sh", "-c", "test -t 1 && stty size")
    assert result.stdout == b"24 80\r\n"
    refused = sbx("run", "-it", "--", "true")
    assert (refused.code, "our input is not a terminal" in refused.err) == (125, True)
    data = os.urandom(100_000)
    assert sbx.ok("run", "-i", "-m", "512", "--", "cat", stdin=data).stdout == data
