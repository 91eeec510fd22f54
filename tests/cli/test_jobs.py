"""Commands that outlive their client: begun, listed, looked at, taken up and ended by whoever knows their id."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sbxtui.control.local import find_local_cloud
from sbxtui.settings import load
from tests.support.sbx import Sbx, is_running_in


def test_a_detached_job_is_listed_read_taken_up_and_keeps_its_exit_code(sbx: Sbx, app: str) -> None:
    job = sbx.ok("exec", "-d", app, "--", "sh", "-c", "seq 5; echo bad >&2; exec sleep 1000").out
    assert [one["id"] for one in sbx.ok("jobs", app, "--json").json] == [job]
    assert job[:12] in sbx.ok("jobs").out
    assert sbx.ok("output", job, "--tail", "2").stdout in (b"4\n5\n", b"5\n")
    taken = sbx.spawn("attach", job[:8])
    assert taken.stdout is not None
    assert taken.stdout.readline() == b"1\n"
    kill = sbx.ok("kill", app, job)
    assert kill.out == job
    assert taken.wait(30) == 128 + signal.SIGTERM
    taken.communicate()
    assert job not in sbx.ok("jobs").out
    ended = next(one for one in sbx.ok("jobs", "--all", "--json").json if one["id"] == job)
    assert (ended["state"], ended["exit"]["signal"], ended["actor"]) == ("exited", signal.SIGTERM, "cli:you")
    again = sbx("kill", job)
    assert (again.code, "has ended with exit code 143" in again.err) == (5, True)


def test_a_long_silent_job_survives_the_death_of_its_client_and_is_taken_up_by_another(sbx: Sbx, app: str) -> None:
    line = "echo begun; while ! [ -e go ]; do sleep 0.1; done; echo over; exit 9"
    client = sbx.spawn("exec", app, "--", "sh", "-c", line)
    assert client.stdout is not None
    assert client.stdout.readline() == b"begun\n"
    client.kill()
    client.communicate()
    job = next(one["id"] for one in sbx.ok("jobs", app, "--json").json if "begun" in one["command"])
    taken = sbx.spawn("attach", job, "--from", "6")
    sbx.ok("exec", app, "--", "touch", "go")
    out, err = taken.communicate(timeout=60)
    assert (taken.returncode, out) == (9, b"over\n"), err


@pytest.mark.parametrize(
    "silent_s",
    # Longer than a client waits for a guest that says nothing at all; and what makes others give up.
    [pytest.param(50, marks=pytest.mark.slow), pytest.param(600, marks=pytest.mark.soak)],
)
def test_however_long_a_job_is_silent_it_is_followed_to_its_end(sbx: Sbx, app: str, silent_s: int) -> None:
    line = f"echo begun; sleep {silent_s}; echo over; exit 9"
    staying, dying = (sbx.spawn("exec", app, "--", "sh", "-c", line) for _ in range(2))
    for client in (staying, dying):
        assert client.stdout is not None
        assert client.stdout.readline() == b"begun\n"
    dying.kill()
    dying.communicate()
    jobs = [one["id"] for one in sbx.ok("jobs", app, "--json").json if f"sleep {silent_s};" in one["command"]]
    assert len(jobs) == 2
    taken = [sbx.spawn("attach", job, "--from", "6") for job in jobs]
    for client in (staying, *taken):
        out, err = client.communicate(timeout=silent_s + 60)
        assert (client.returncode, out) == (9, b"over\n"), err


def test_a_local_cloud_that_dies_under_commands_is_started_again_by_them(sbx: Sbx, app: str) -> None:
    line = "echo begun; until [ -e back ]; do sleep 0.1; done; head -c 100000 /dev/zero; exit 6"
    clients = [sbx.spawn("exec", app, "--", "sh", "-c", line) for _ in range(2)]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline() == b"begun\n"
    home = load(sbx.environment(), cwd=sbx.home).home
    dead = find_local_cloud(home)
    assert dead is not None
    os.kill(dead.pid, signal.SIGKILL)
    # Nobody else is there to need it.
    while (cloud := find_local_cloud(home)) is None or cloud.pid == dead.pid:
        assert all(client.poll() is None for client in clients)
    sbx.ok("exec", app, "--", "touch", "back")
    for client in clients:
        out, err = client.communicate(timeout=60)
        assert (client.returncode, out, err) == (6, bytes(100_000), b"")


@pytest.mark.long
def test_killing_a_job_ends_what_does_not_listen_and_what_escaped(sbx: Sbx, app: str) -> None:
    line = "trap '' TERM; setsid sleep 3001 & (setsid sleep 3002 &) ; sleep 0.1; echo up; sleep 3003"
    job = sbx.ok("exec", "-d", app, "--", "sh", "-c", line).out
    taken = sbx.spawn("attach", job)
    assert taken.stdout is not None
    assert taken.stdout.readline() == b"up\n"
    assert sbx.ok("kill", job).out == job
    assert taken.wait(30) == 128 + signal.SIGKILL
    taken.communicate()
    assert not any(is_running_in(sbx, app, f"sleep {number}") for number in (3001, 3002, 3003))


@pytest.mark.slow
def test_a_timeout_counts_no_time_for_which_its_sandbox_slept(sbx: Sbx) -> None:
    sbx.ok("create", "sleeper", "-m", "512")
    line = "echo up; until [ -e go ]; do sleep 0.1; done; exit 4"
    client = sbx.spawn("exec", "--timeout", "20", "sleeper", "--", "sh", "-c", line)
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    sbx.ok("stop", "sleeper")
    # Nothing to wait for: the time itself must go by, and more of it than the job has.
    time.sleep(25)
    sbx.ok("start", "sleeper")
    sbx.ok("exec", "sleeper", "--", "touch", "go")
    _, err = client.communicate(timeout=60)
    assert client.returncode == 4, err
    sbx.ok("rm", "sleeper", "--yes")


def test_input_reaches_a_job_taken_up_and_its_end_too(sbx: Sbx, app: str) -> None:
    job = sbx.ok("exec", "-d", "-i", app, "--", "wc", "-l").out
    taken = sbx.ok("attach", "-i", app, job, stdin=b"one\ntwo\n")
    assert taken.stdout.strip() == b"2"
    deaf = sbx.ok("exec", "-d", app, "--", "sleep", "60").out
    refused = sbx("attach", "-i", deaf, stdin=b"x")
    assert (refused.code, "without input" in refused.err) == (125, True)
    sbx.ok("kill", "-s", "kill", deaf)
    lines = sbx.ok("events", app, "--json", "--tail", "50").stdout.splitlines()
    kinds = {json.loads(line)["kind"] for line in lines}
    assert {"job.start", "job.input", "job.exit", "job.signal"} <= kinds


def test_output_is_byte_exact_and_says_what_a_script_needs(sbx: Sbx, app: str) -> None:
    line = r"printf 'caf\303'; sleep 0.1; printf '\251\n\000\377'; printf 'e\n' >&2"
    job = sbx.ok("exec", "-d", app, "--", "sh", "-c", line).out
    told = sbx.ok("output", job, "--follow")
    assert (told.stdout, told.stderr.splitlines()[0]) == ("café\n".encode() + b"\0\xff", b"e")
    documents = [one for one in sbx.ok("output", job, "--json").stdout.splitlines()]
    assert b'"exit": {"exit_code": 0' in documents[-1]


def test_pipes_through_exec_behave_as_in_a_local_script(sbx: Sbx, app: str) -> None:
    exec_in = f"{sbx.command} exec -i {app} --"
    line = f"printf 'a\\nb\\nc\\n' | {exec_in} wc -l | tr -d ' '; printf x | {exec_in} false"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line], env=sbx.environment(), capture_output=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == (b"3\n", 1)


def test_the_first_ctrl_c_is_the_commands_and_the_second_leaves(sbx: Sbx, app: str) -> None:
    trap = "trap 'echo caught' INT; echo ready; while :; do sleep 0.05; done"
    client = sbx.spawn("exec", app, "--", "sh", "-c", trap)
    assert client.stdout is not None
    assert client.stdout.readline() == b"ready\n"
    client.send_signal(signal.SIGINT)
    assert client.stdout.readline() == b"caught\n"
    # Impatient hands press on; that cuts nothing off, least of all the end of the command.
    while client.poll() is None:
        client.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.wait(0.01)
    _, err = client.communicate(timeout=60)
    assert (client.returncode, b"Traceback" in err) == (130, False), err
    assert not [one for one in sbx.ok("jobs", app, "--json").json if "caught" in one["command"]]


def test_who_is_started_deaf_to_a_signal_stays_so(sbx: Sbx, app: str) -> None:
    line = f"trap '' HUP INT; exec {sbx.command} exec {app} -- sh -c 'echo up; until [ -e on ]; do sleep 0.1; done'"
    client = subprocess.Popen(["sh", "-c", line], env=sbx.environment(), stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == b"up\n"
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGINT):
        client.send_signal(number)
    sbx.ok("exec", app, "--", "touch", "on")
    assert client.wait(60) == 0
    client.communicate()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GOOD=1\nno sign\n", "env:2: no `=`"),
        (b"\n# a comment\n1X=y\n", "env:3: `1X` cannot name a variable"),
        (b"A=\0\n", "env:1: "),
        (b"A=1\nB=\xff\n", "env:2: not UTF-8"),
        (b"A=1\nNOT_HERE\n", "env:2: `NOT_HERE` has no `=`"),
    ],
)
def test_a_bad_line_of_an_env_file_is_named_by_file_and_line(
    sbx: Sbx, app: str, tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "env").write_bytes(content)
    result = sbx("exec", app, "--env-file", str(tmp_path / "env"), "--", "true")
    assert (result.code, words in result.err) == (125, True), result.err


def test_variables_of_env_files_are_taken_as_they_stand_and_env_counts_over_them(
    sbx: Sbx, app: str, tmp_path: Path
) -> None:
    (tmp_path / "env").write_text('# none\nA="quoted" # kept\n\nB=from file\nC=\n')
    line = 'echo "$A|$B|$C|"'
    result = sbx.ok("exec", app, "--env-file", str(tmp_path / "env"), "--env", "B=given", "--", "sh", "-c", line)
    assert result.out == '"quoted" # kept|given||'


def test_a_variable_without_a_value_is_ones_own_as_with_docker(sbx: Sbx, app: str, tmp_path: Path) -> None:
    own = replace(sbx, env={"MINE": "a b", "OTHER": "c"})
    (tmp_path / "env").write_text("OTHER\nKEPT=1\n")
    line = 'echo "$MINE|$OTHER|$KEPT"'
    flags = ["--env-file", str(tmp_path / "env"), "-e", "MINE"]
    assert own.ok("exec", *flags, app, "--", "sh", "-c", line).out == "a b|c|1"


BAD_LINES = [
    (("exec", "nobody", "--", "true"), 125, "no sandbox `nobody`"),
    (("exec", "app", "--env", "NO SIGN", "--", "true"), 125, "cannot name a variable"),
    (("exec", "app", "--env", "NO_SIGN", "--", "true"), 125, "`NO_SIGN` has no `=`"),
    (("exec", "app", "--env-file", "/nowhere", "--", "true"), 125, "--env-file /nowhere"),
    (("exec", "app", "--cwd", "/nowhere", "--", "true"), 125, "working directory (cwd) `/nowhere`"),
    (("exec", "app"), 125, "no command"),
    (("exec", "-d", "app", "--", "no-such-program"), 127, "could not be started"),
    (("exec", "-d", "app", "--", "/etc/passwd"), 126, "could not be started"),
    (("attach", "ffffff"), 125, "no job `ffffff`"),
    (("output", "ffffff"), 4, "no job `ffffff`"),
    (("output", "app", "ffffff"), 4, "no job `ffffff`"),
    (("output", "nobody", "ffffff"), 4, "no sandbox `nobody`"),
    (("output", "ffffff", "--tail", "-1"), 2, "no whole number"),
    (("kill", "ffffff", "-s", "NOPE"), 2, "no signal `NOPE`"),
    (("kill", "ffffff", "-s", "65"), 2, "no signal `65`"),
    (("kill", ""), 4, "no job"),
]


@pytest.mark.parametrize(("words", "code", "said"), BAD_LINES)
def test_a_line_that_cannot_be_is_a_clear_error(
    sbx: Sbx, app: str, words: tuple[str, ...], code: int, said: str
) -> None:
    result = sbx(*words)
    assert (result.code, said in result.err) == (code, True), result.err


def test_arguments_that_are_too_long_for_a_program_are_told_as_such(sbx: Sbx, app: str, tmp_path: Path) -> None:
    # This machine's own limit holds for our line, so most of it comes from a file.
    (tmp_path / "env").write_text("".join(f"A{number}={'x' * 100_000}\n" for number in range(9)))
    words = ["x" * 120_000] * 12
    result = sbx("exec", "--env-file", str(tmp_path / "env"), app, "--", "true", *words)
    assert (result.code, "too long for a program" in result.err) == (125, True), result.err
    assert sbx.ok("exec", app, "--", "sh", "-c", "echo $#", "sh", *words).out == "12"


@pytest.mark.long
def test_a_sandbox_that_sleeps_or_ended_is_told_apart_and_nothing_runs(sbx: Sbx) -> None:
    sbx.ok("create", "away", "-m", "512")
    job = sbx.ok("exec", "-d", "away", "--", "sleep", "1000").out
    sbx.ok("stop", "away")
    for words, code in ((("exec", "away", "--", "true"), 125), (("attach", job), 125), (("kill", job), 5)):
        result = sbx(*words)
        assert (result.code, "suspended" in result.err, "sbx start away" in result.err) == (code, True, True), words
    sandbox_id = sbx.ok("inspect", "away", "--json").json["id"]
    sbx.ok("rm", "away", "--yes", "--wait")
    for words, code in ((("exec", "away", "--", "true"), 125), (("exec", sandbox_id, "--", "true"), 125)):
        result = sbx(*words)
        assert (result.code, "no sandbox" in result.err) == (code, True), result.err
    assert sbx("kill", job).code == 4


@pytest.mark.long
def test_quiet_lists_are_what_other_verbs_call_their_rows_by(sbx: Sbx, app: str) -> None:
    job = sbx.ok("exec", "-d", app, "--", "true").out
    assert job in sbx.ok("jobs", "-q", "--all", app).out.splitlines()
    assert sbx.ok("ps", "-q", app).out == app
    assert sbx.ok("context", "ls", "-q").out == "local"
    assert all(line.startswith("arn:") and " " not in line for line in sbx.ok("image", "ls", "-q").out.splitlines())
    assert "pypi" in sbx.ok("network", "--presets", "-q").out.splitlines()


@pytest.mark.long
def test_a_prefix_of_several_jobs_names_them(sbx: Sbx, app: str) -> None:
    jobs = [sbx.ok("exec", "-d", app, "--", "true").out for _ in range(17)]
    first = next(one[0] for one in jobs if sum(other[0] == one[0] for other in jobs) > 1)
    result = sbx("--json", "output", first)
    assert (result.code, result.error["code"]) == (5, "ambiguous")
    assert len(result.error["details"]["jobs"]) > 1
