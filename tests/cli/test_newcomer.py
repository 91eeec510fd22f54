"""What hands do that come from other tools, and what they are told."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

from tests.support.sbx import Sbx


def _kinds(sbx: Sbx, reference: str) -> list[tuple[str, str]]:
    lines = sbx.ok("events", reference, "--json").out.splitlines()
    return [(one["subject"], one["kind"]) for one in map(json.loads, lines)]


def test_events_follow_a_machine_through_its_names_and_no_other_of_the_same_name(sbx: Sbx) -> None:
    sbx.ok("create", "first", "-m", "512")
    first_id = sbx.ok("ls", "--json").json[0]["id"]
    sbx.ok("label", "first", "of=first")
    sbx.ok("rename", "first", "second")
    sbx.ok("create", "first", "-m", "512")
    sbx.ok("label", "first", "of=other")
    for reference in ("second", first_id):
        told = _kinds(sbx, reference)
        assert (told[0], told[-1]) == (("first", "sandbox.reserved"), ("second", "sandbox.renamed"))
        assert told.count(("first", "sandbox.labels")) == 1
    told = _kinds(sbx, "first")
    assert (told[0], told.count(("first", "sandbox.reserved"))) == (("first", "sandbox.reserved"), 1)
    assert len(sbx.ok("events", "second", "--tail", "1").out.splitlines()) == 1
    sbx.ok("rm", "second", "first", "--yes")
    assert ("second", "sandbox.removed") in _kinds(sbx, first_id)


def test_a_signal_is_named_as_everywhere(sbx: Sbx, app: str) -> None:
    for signal, code in (("-9", 137), ("-KILL", 137), ("-TERM", 143), ("-SIGINT", 130)):
        job = sbx.ok("exec", "-d", app, "--", "python3", "-c", "import signal; signal.pause()").out
        sbx.ok("kill", signal, job)
        assert sbx("attach", "--no-stdin", app, job).code == code


def test_a_sandboxs_name_is_no_job_however_ids_begin(sbx: Sbx, app: str) -> None:
    job = sbx.ok("exec", "-d", app, "--", "sleep", "1000").out
    sbx.ok("rename", app, job[0])
    named = sbx("kill", job[0])
    assert (named.code, f"`{job[0]}` is a sandbox, and no job" in named.err) == (2, True)
    sbx.ok("rename", job[0], app)
    sbx.ok("kill", "-9", job[:6])


def test_a_result_that_goes_nowhere_is_a_failure(sbx: Sbx, app: str) -> None:
    for words, code in ((["ls"], 1), (["exec", app, "--", "echo", "hi"], 125), (["exec", app, "--", "true"], 0)):
        line = [*("sh", "-c", 'exec "$@" >&-', "sh"), *(sys.executable, "-m", "sbxtui"), *words]
        done = subprocess.run(line, env=sbx.environment(), capture_output=True, timeout=60, check=False)
        assert (done.returncode, b"standard output" in done.stderr) == (code, bool(code)), done.stderr


def test_flags_are_written_out_and_a_home_has_a_whole_path(sbx: Sbx) -> None:
    shortened = sbx("ls", "--jso")
    assert (shortened.code, "--jso" in shortened.err) == (2, True)
    relative = replace(sbx, env={"SBX_HOME": "rel"})("ls")
    assert (relative.code, "is relative" in relative.err) == (2, True)


def test_what_is_refused_or_done_already_is_told_in_the_sandboxes_own_name(sbx: Sbx) -> None:
    sbx = replace(sbx, env={"TOKEN_OF_MINE": "passed on"})
    sbx.ok("create", "rest", "-m", "512", "--env", "TOKEN_OF_MINE")
    assert sbx.ok("exec", "rest", "--", "printenv", "TOKEN_OF_MINE").out == "passed on"
    unset = sbx("create", "never", "-m", "512", "--env", "NOBODY_HAS_THIS")
    assert (unset.code, "NOBODY_HAS_THIS" in unset.err) == (2, True)
    absent = sbx("secret", "rm", "rest", "NO_KEY")
    assert (absent.code, absent.err.splitlines()[0]) == (4, "error: `rest` has no secret `NO_KEY`")
    waited = sbx("wait", "rest", "--for", "suspended", "--timeout", "1")
    # On a slow machine a second may go by before the first look.
    assert "it is running" in waited.err or "it is not seen" in waited.err
    sbx.ok("stop", "rest")
    assert "suspended" in sbx.ok("stop", "rest").err
    assert [kind for _, kind in _kinds(sbx, "rest")].count("sandbox.suspend") == 1
    sbx.ok("rm", "rest", "--yes")


def test_a_list_of_nothing_says_so_and_prints_no_heads(sbx: Sbx, app: str) -> None:
    for words, says in ((("ports", app), f"nothing listens in `{app}`"), (("forward", "ls"), "no forwards")):
        told = sbx.ok(*words)
        assert (told.out, says in told.err) == ("", True), told
    assert sbx.ok("forward", "ls", "-q").stderr == b""
