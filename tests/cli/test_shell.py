"""A person's terminal lent to a job: what is shown and typed, and that it always comes back as it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.on_terminal import follows_its_window_and_is_interrupted, sbx_on_terminal
from tests.support.sbx import Sbx


@pytest.fixture
def fresh_app(sbx: Sbx) -> Iterator[str]:
    """A sandbox that the test may rename."""
    made = sbx.ok("create", "-m", "512", "--json").json
    yield made["name"]
    sbx.ok("rm", made["id"], "--yes")


def test_a_shell_knows_its_size_and_kind_at_once_and_follows_the_window(sbx: Sbx, app: str) -> None:
    with sbx_on_terminal(sbx, "shell", app, size=(91, 33), term="screen-256color") as terminal:
        before = terminal.modes()
        terminal.until_raw()
        terminal.type(b"stty size; echo kind=$TERM\r")
        terminal.see(b"33 91")
        terminal.see(b"kind=screen-256color")
        follows_its_window_and_is_interrupted(terminal)
        terminal.type(b"echo s''till; exit 5\r")
        terminal.see(b"still")
        assert terminal.wait() == 5
        assert terminal.modes() == before


def test_who_leaves_a_shell_comes_back_to_it(sbx: Sbx, app: str) -> None:
    with sbx_on_terminal(sbx, "shell", app) as terminal:
        terminal.until_raw()
        terminal.type(b"mark=ke''pt; echo re''ady\r")
        terminal.see(b"ready")
        terminal.type(b"\x1d")
        assert terminal.wait() == 0
        words = terminal.see(b"sbx attach app ").decode() and terminal.seen.decode().split("sbx attach app ")[1]
        assert not terminal.is_raw
    job = words.split("`")[0]
    assert sbx.ok("jobs", app, "--wide").out.splitlines()[-1].endswith("  shell")
    with sbx_on_terminal(sbx, "attach", job) as terminal:
        terminal.see(b"ready")
        terminal.type(b"echo $mark; exit 3\r")
        terminal.see(b"kept")
        assert terminal.wait() == 3


def test_a_program_that_draws_its_whole_screen_is_taken_up_on_a_screen_of_its_own(sbx: Sbx, app: str) -> None:
    script = r"printf '\033[?1049h\033[?2004hdra''wn'; read -r line; printf '\033[?2004l\033[?1049l'"
    with sbx_on_terminal(sbx, "exec", "-it", app, "--", "sh", "-c", script) as terminal:
        terminal.see(b"drawn")
        terminal.type(b"\x1d")
        assert terminal.wait() == 0
        words = terminal.see(b"sbx attach app ").decode() and terminal.seen.decode().split("sbx attach app ")[1]
    with sbx_on_terminal(sbx, "attach", words.split("`")[0]) as terminal:
        terminal.see(b"\x1b[?1049h\x1b[?2004h")
        terminal.type(b"\r")
        terminal.see(b"\x1b[?1049l")
        assert terminal.wait() == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)], ids=str
)
def test_a_signal_gives_the_terminal_back_and_leaves_the_job(
    sbx: Sbx, app: str, number: signal.Signals, code: int
) -> None:
    with sbx_on_terminal(sbx, "exec", "-it", app, "--", "sh", "-c", "printf '\\033[?1049h\\033[?25l'; cat") as terminal:
        before = terminal.modes()
        terminal.see(b"\x1b[?25l")
        terminal.until_raw()
        terminal.process.send_signal(number)
        assert terminal.wait() == code
        assert terminal.modes() == before
        terminal.see(b"\x1b[?25h\x1b[?1049l")
        terminal.see(b"sbx attach app ")
    job = terminal.seen.decode().split("sbx attach app ")[1].split("`")[0]
    sbx.ok("kill", "-s", "KILL", job)


def test_a_window_that_is_closed_ends_the_client_and_not_the_job(sbx: Sbx, app: str) -> None:
    with sbx_on_terminal(sbx, "exec", "-it", app, "--", "sh", "-c", "echo up; exec sleep 1001") as terminal:
        terminal.see(b"up")
        terminal.hang_up()
        assert terminal.wait() == 129
    job = next(one["id"] for one in sbx.ok("jobs", app, "--json").json if "1001" in one["command"])
    sbx.ok("kill", job)


def test_two_watchers_and_a_typist_share_one_terminal(sbx: Sbx, app: str) -> None:
    job = sbx.ok("exec", "-dt", app, "--", "sh", "-c", "stty -echo; echo up; cat").out
    with sbx_on_terminal(sbx, "attach", job) as first, sbx_on_terminal(sbx, "attach", "--no-stdin", job) as second:
        first.until_raw()
        second.see(b"up")
        sbx_typist = sbx.spawn("attach", "-i", job, stdin=-1)
        assert sbx_typist.stdin is not None
        sbx_typist.stdin.write("from outside: ä\n".encode())
        sbx_typist.stdin.flush()
        for watcher in (first, second):
            watcher.see("from outside: ä".encode())
        first.type(b"from the first\r")
        second.see(b"from the first")
        first.type(b"\x04")
        assert (first.wait(), second.wait(), sbx_typist.wait(60)) == (0, 0, 0)
        sbx_typist.communicate()
        assert not first.is_raw


def test_a_terminal_without_a_person_is_output_alone(sbx: Sbx, app: str) -> None:
    result = sbx.ok("exec", "-t", app, "--", "sh", "-c", "test -t 1 && stty size; echo err >&2")
    assert (result.stdout, result.stderr) == (b"24 80\r\nerr\r\n", b"")
    refused = sbx("exec", "-it", app, "--", "true")
    assert (refused.code, "our input is not a terminal" in refused.err) == (125, True)
    assert sbx("shell", app).code == 125


def test_pipes_stay_pipes_on_a_terminal_of_ours(sbx: Sbx, app: str, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    assert sbx.ok("exec", "-i", app, "--", "cat", stdin=data).stdout == data
    with sbx_on_terminal(sbx, "exec", app, "--", "sh", "-c", "test -t 0 || test -t 1 || echo no terminal") as terminal:
        terminal.see(b"no terminal")
        assert not terminal.is_raw
        assert terminal.wait() == 0


def test_a_prompt_says_which_sandbox_one_is_in_also_under_a_new_name(sbx: Sbx, fresh_app: str) -> None:
    for words in (("shell", fresh_app), ("exec", "-it", fresh_app, "sh")):
        with sbx_on_terminal(sbx, *words) as terminal:
            terminal.see(f"{fresh_app}:/work$ ".encode())
            terminal.type(b"cd /tmp\r")
            terminal.see(f"{fresh_app}:/tmp$ ".encode())
            terminal.type(b"exit\r")
            assert terminal.wait() == 0
    sbx.ok("rename", fresh_app, "renamed")
    with sbx_on_terminal(sbx, "shell", "renamed") as terminal:
        terminal.see(b"renamed:/work$ ")
        terminal.type(b"exit\r")
        assert terminal.wait() == 0
    assert sbx.ok("exec", "renamed", "printenv", "SBX_SANDBOX").out == "renamed"


def test_a_prompt_of_ones_own_is_left_alone(sbx: Sbx, app: str) -> None:
    with sbx_on_terminal(sbx, "exec", "-it", "-e", "PS1=mine> ", app, "sh") as terminal:
        terminal.see(b"mine> ")
        terminal.type(b"exit\r")
        assert terminal.wait() == 0
    assert sbx("exec", app, "printenv", "PS1").code == 1


def test_a_sandbox_takes_itself_for_what_it_is_called(sbx: Sbx, app: str) -> None:
    told = sbx.ok(
        "exec", app, "sh", "-c", 'uname -n; cat /etc/hostname; echo "$SBX_SANDBOX"; getent hosts "$(uname -n)"'
    )
    assert told.out.splitlines()[:3] == [app] * 3
    assert app in told.out.splitlines()[3]
