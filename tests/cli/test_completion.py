"""Completion offers what may stand at that place, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sbxtui.cli import parser
from sbxtui.cli.candidates import FILES, FOLDERS, Known, candidates
from sbxtui.core.model import SandboxState
from tests.support.sbx import Sbx

STATES = {
    "api": SandboxState.RUNNING,
    "asleep": SandboxState.SUSPENDED,
    "gone": SandboxState.TERMINATED,
    "unsure": SandboxState.UNKNOWN,
}
KNOWN = Known(
    names=lambda states: [name for name, state in STATES.items() if state in states],
    contexts=lambda: ["local", "work"],
    images=lambda: ["sbx-base", "sbx-base-512"],
    jobs=lambda: ["job-1"],
)
EVERY_NAME = list(STATES)


def complete(line: str) -> list[str]:
    """The candidates for the end of a line."""
    return candidates(parser.program(), line.split(" "), KNOWN)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("cont", ["context"]),
        ("context ", ["ls", "use", "add", "rm"]),
        ("context use ", ["local", "work"]),
        ("context use w", ["work"]),
        ("context rm ", ["work"]),
        ("context ls ", []),
        ("context add ", []),
        ("start ", ["asleep", "unsure"]),
        ("stop ", ["api", "unsure"]),
        ("stop api ", ["unsure"]),
        ("rm ", EVERY_NAME),
        ("rm gone ", ["api", "asleep", "unsure"]),
        ("inspect ", EVERY_NAME),
        ("inspect api ", []),
        ("exec a", ["api", "asleep"]),
        ("exec api ", []),
        ("exec api -- ", []),
        ("exec api ls -", []),
        ("exec api --cw", ["--cwd"]),
        ("exec api --cwd /x ls --cw", []),
        ("help cont", ["context"]),
        ("help context u", ["use"]),
        ("rename ", EVERY_NAME),
        ("rename api ", []),
        ("cp a", ["api:", "asleep:", FILES]),
        ("fs cat ", ["api", "asleep", "unsure"]),
        ("fs cat api ", []),
        ("attach ", ["api", "asleep", "unsure", "job-1"]),
        ("attach api ", ["job-1"]),
        ("wait api --for ", ["running", "suspended", "terminated", "ready"]),
        ("wait api --for=s", ["--for=suspended"]),
        ("wait api --for = s", ["suspended"]),
        ("create --image ", ["sbx-base", "sbx-base-512"]),
        ("create -m ", ["512", "1024", "2048", "4096", "8192"]),
        ("create --network i", ["internet"]),
        ("create --env ", []),
        ("create new ", []),
        ("-c work rm ", EVERY_NAME),
        ("--context ", ["local", "work"]),
        ("ls -c ", ["local", "work"]),
        ("ls --filter a", ["age<", "age>"]),
        ("-f ", [FILES]),
        ("trust ", [FOLDERS]),
        ("completion b", ["bash"]),
        ("no-such-verb ", []),
    ],
)
def test_a_place_gets_what_belongs_there(line: str, found: list[str]) -> None:
    assert complete(line) == found


def test_flags_are_of_the_verb_and_those_given_already_are_left_out() -> None:
    assert "--dry-run" in complete("rm --")
    assert "--dry-run" not in complete("rm --dry-run --")
    assert "--dry-run" not in complete("ls --")
    assert "--env" in complete("create --env A=1 --e")
    assert complete("rm --all --y") == ["--yes"]


def test_what_is_typed_first_are_the_verbs() -> None:
    assert set(complete("")) == set(parser.verbs())


def test_a_shell_is_answered_from_what_was_last_seen(sbx: Sbx, app: str) -> None:
    sbx.ok("ls")
    answer = sbx.ok("completion", "words", stdin=b"stop\0")
    assert answer.out == "stop"
    assert sbx.ok("completion", "words", stdin=b"stop\0\0").out.splitlines() == [app]
    assert sbx.ok("completion", "words", stdin=b"start\0\0").out == ""


def test_a_home_nobody_used_is_not_touched_by_completion(fresh: Sbx) -> None:
    assert fresh.ok("completion", "words", stdin=b"rm\0\0").out == ""
    assert not (fresh.home / "state" / "local").exists()


# What each shell's own completion gives a script, and how it takes the answer.
_IN_BASH = """
COMP_WORDS=(sbx exec ''); COMP_CWORD=2; _sbx; printf '%s\\n' "${COMPREPLY[@]}"
COMP_WORDS=(sbx cp with); COMP_CWORD=2; _sbx; printf '%s\\n' "${COMPREPLY[@]}"
"""
_IN_ZSH = """
compadd() { printf '%s\\n' "${(@P)@[-1]}"; }
_files() { printf '%s\\n' with*; }
words=(sbx exec ''); CURRENT=3; _sbx
words=(sbx cp with); CURRENT=3; _sbx
"""
_IN_FISH = """
complete -C'sbx exec '
complete -C'sbx cp with' | string unescape
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("shell", "ask"), [("bash", _IN_BASH), ("zsh", _IN_ZSH), ("fish", _IN_FISH)], ids=["bash", "zsh", "fish"]
)
def test_the_script_completes_in_its_shell(shell: str, ask: str, sbx: Sbx, app: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    sbx.ok("ls")
    (tmp_path / "script").write_bytes(sbx.ok("completion", shell).stdout)
    (tmp_path / "with blank").touch()
    function = f"function sbx; {sys.executable} -m sbxtui $argv; end"
    if shell != "fish":
        function = f'sbx() {{ {sys.executable} -m sbxtui "$@"; }}; compdef() {{ :; }}'
    done = subprocess.run(
        [shell, "-c", f"{function}\nsource ./script\n{ask}"],
        env=sbx.environment(),
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.decode().splitlines() == [app, "with blank"], done.stderr
