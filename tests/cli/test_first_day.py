"""What somebody meets who uses `sbx` for the first time, in one shared sandbox."""

from __future__ import annotations

import dataclasses
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


@pytest.mark.long
def test_of_several_names_those_that_are_right_are_done(sbx: Sbx, app: str) -> None:
    sbx.ok("create", "gone", "-m", "512")
    for words in (["stop", "gone", "nope"], ["start", "nope", "gone"], ["rm", "nope", "gone", "--yes"]):
        done = sbx(*words)
        assert (done.code, done.out) == (4, "gone"), done.err
        assert "no sandbox `nope`" in done.err
    assert sbx.ok("ls", "-q").out.split() == [app]
    told = sbx("--json", "stop", "nope", "nobody").json
    assert [(one["name"], one["ok"]) for one in told] == [("nope", False), ("nobody", False)]


def test_a_command_that_was_killed_on_purpose_is_not_explained(sbx: Sbx, app: str) -> None:
    killed = sbx("exec", app, "--", "sh", "-c", "kill -9 $$")
    assert (killed.code, killed.err) == (137, "")
    job = sbx.ok("exec", "-d", app, "--", "sleep", "300").out
    sbx.ok("kill", job, "--signal", "KILL")
    attached = sbx("attach", job)
    assert (attached.code, attached.err) == (137, "")


@pytest.mark.long
def test_inspect_tells_what_a_sandbox_was_made_with_but_no_value_of_its_environment(sbx: Sbx) -> None:
    sbx.ok("create", "made", "-m", "512M", "--env", "TOKEN=secret", "--env", "A=b", "-w", "/tmp")
    told = sbx.ok("inspect", "made")
    assert {key: told.json[key] for key in ("memory_mib", "cpus", "workdir", "env_names")} == {
        "memory_mib": 512,
        "cpus": 1,
        "workdir": "/tmp",
        "env_names": ["A", "TOKEN"],
    }
    assert "secret" not in told.out
    sbx.ok("rm", "made", "--yes")


@pytest.mark.long
def test_a_sandbox_that_is_being_removed_is_said_to_be_gone(sbx: Sbx) -> None:
    sandbox_id = sbx.ok("create", "ending", "-m", "512", "--json").json["id"]
    cloud = sbx.ok("local", "env", "--json").json
    sbx.ok("context", "add", "other", "--region", "local-1", "--endpoint-url", cloud["AWS_ENDPOINT_URL_STS"])
    keys = {key: cloud[key] for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CA_BUNDLE")}
    dataclasses.replace(sbx, env=keys).ok("-c", "other", "rm", sandbox_id, "--yes")
    ran = sbx("exec", "ending", "--", "true")
    assert ran.code == 125
    assert ran.err.startswith("error: `ending` was terminated"), ran.err
    sbx.ok("rm", "ending", "--yes")


def test_what_a_broken_context_holds_is_not_nothing(sbx: Sbx) -> None:
    sbx.ok("context", "add", "broken", "--region", "us-east-1", "--endpoint-url", "http://127.0.0.1:9")
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    listed = dataclasses.replace(sbx, env=keys)("-c", "broken", "ls")
    assert listed.code == 7, listed.err
    assert listed.err.startswith("error: ")


def test_a_reset_tells_the_names_of_what_it_ended(sbx: Sbx, app: str) -> None:
    # The last one: it takes the shared sandbox with it.
    assert app in sbx.ok("local", "reset", "--yes").out.split()
