"""Bad input: what failed, why, what next, with the exit code scripts rely on, and nothing changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.sbx import Sbx

# Line, exit code, error code. None of these reaches a sandbox.
MISTAKES = [
    (["nosuchverb"], 2, "usage"),
    (["create", "Bad_Name"], 2, "usage"),
    (["create", "ls"], 2, "usage"),
    (["create", "x", "--memory", "777"], 2, "usage"),
    (["create", "x", "--memory", "lots"], 2, "usage"),
    (["create", "x", "--memory", "512", "--cpus", "9"], 2, "usage"),
    (["create", "x", "--env", "NOVALUE"], 2, "usage"),
    (["create", "x", "--idle", "5"], 2, "usage"),
    (["create", "x", "--max-duration", "9h"], 2, "usage"),
    (["create", "x", "--egress"], 2, "usage"),
    (["create", "--replace"], 2, "usage"),
    (["create", "x", "--network", "somewhere"], 2, "usage"),
    (["create", "x", "--network", "allow=127.0.0.1:80"], 2, "usage"),
    (["create", "x", "--network", "allow=nosuchpreset"], 2, "usage"),
    (["network"], 2, "usage"),
    (["network", "nobody"], 4, "sandbox_not_found"),
    (["network", "nobody", "--follow"], 2, "usage"),
    (["create", "x", "--egress-connector", "arn:c"], 9, "policy_denied"),
    (["create", "x", "--role", "arn:aws:iam::1:role/x"], 9, "policy_denied"),
    (["create", "x", "--image", "no-such-image"], 4, "image_not_found"),
    (["create", "x", "--image", "bad name"], 2, "usage"),
    (["ls", "--filter", "nosuch:x"], 2, "usage"),
    (["ls", "--sort", "colour"], 2, "usage"),
    (["ls", "--sort", "-colour"], 2, "usage"),
    (["create", "x", "--env", "BIG=" + "x" * 40_000], 2, "usage"),
    (["ps", "nobody"], 4, "sandbox_not_found"),
    (["inspect", "nobody"], 4, "sandbox_not_found"),
    (["stop", "nobody"], 4, "sandbox_not_found"),
    (["stop"], 2, "usage"),
    (["stop", "--all", "x"], 2, "usage"),
    (["start", "no*"], 4, "sandbox_not_found"),
    (["rm", "nobody", "--yes"], 4, "sandbox_not_found"),
    (["wait", "nobody", "--for", "ready"], 4, "sandbox_not_found"),
    (["wait", "x", "--for", "lunch"], 2, "usage"),
    (["adopt", "microvm-00000000-0000-0000-0000-000000000000"], 4, "sandbox_not_found"),
    (["rename", "nobody", "other"], 4, "sandbox_not_found"),
    (["rename", "nobody", "BAD"], 2, "usage"),
    (["label", "nobody", "a=b"], 4, "sandbox_not_found"),
    (["label", "nobody", "ab"], 2, "usage"),
    (["exec", "nobody", "--", "true"], 125, "sandbox_not_found"),
    (["exec", "nobody"], 125, "usage"),
    (["run"], 125, "usage"),
    (["run", "--memory", "5", "--", "true"], 125, "usage"),
    (["cp", "a", "b"], 2, "usage"),
    (["cp", "a:x", "b:y"], 2, "usage"),
    (["cp", "/nonexistent", "nobody:x"], 4, "sandbox_not_found"),
    (["fs", "cat", "nobody", "x"], 4, "sandbox_not_found"),
    (["context", "use", "nowhere"], 4, "not_found"),
    (["--context", "nowhere", "ls"], 4, "not_found"),
    (["context", "add", "x"], 2, "usage"),
    (["context", "add", "local"], 5, "name_taken"),
    (["context", "add", "x", "--region", "no region"], 2, "usage"),
    (["context", "add", "x", "--region", "us-east-1", "--endpoint-url", "notaurl"], 2, "usage"),
    (["create", "microvm-1"], 2, "usage"),
    (["context", "rm", "local", "--yes"], 5, "conflict"),
    (["trust", "."], 4, "file_not_found"),
    (["-f", "missing.yaml", "ls"], 4, "file_not_found"),
    (["tui"], 2, "usage"),
    (["events", "--tail", "-1"], 2, "usage"),
]


@pytest.mark.parametrize(
    ("words", "code", "error"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else None
)
def test_a_mistake_has_its_code_and_a_message_and_prints_no_data(
    sbx: Sbx, words: list[str], code: int, error: str
) -> None:
    result = sbx("--json", *words)
    assert (result.code, result.error["code"]) == (code, error), result.err
    assert result.stdout == b""
    assert result.error["message"]


def test_a_filter_that_is_not_understood_names_what_is(sbx: Sbx) -> None:
    error = sbx("--json", "ls", "--filter", "price>.1").error
    assert error["message"] == "filters know no `price`"
    assert error["hint"] == "known: age, context, cost, id, image, label, name, state, tracked"


def test_a_wait_that_runs_out_is_unavailable_and_tells_the_state_it_saw(sbx: Sbx, app: str) -> None:
    sbx.ok("wait", app, "--for", "running", "--timeout", "0")
    waited = sbx("--json", "wait", app, "--for", "suspended", "--timeout", "1")
    assert (waited.code, waited.error["code"], waited.error["retryable"]) == (7, "timed_out", True)
    assert "it is running" in waited.error["message"]


def test_people_get_a_message_and_a_hint_and_no_traceback(sbx: Sbx) -> None:
    result = sbx("create", "Bad_Name")
    assert result.err.startswith("error: `Bad_Name` cannot name a sandbox\n\nhint: ")
    assert "Traceback" not in result.err
    assert "Traceback" in sbx("--debug", "create", "Bad_Name").err


def test_an_endless_word_is_told_by_its_beginning(sbx: Sbx) -> None:
    endless = "x" * 120_000
    for words in ([endless], ["ls", endless], ["ls", "--filter", f"{endless}:1"], ["wait", "x", "--for", endless]):
        for flags in ([], ["--json"]):
            result = sbx(*flags, *words)
            assert (result.code, len(result.err) < 1_000) == (2, True), words[0][:9]
            assert "xxxxxxxxxxxx…" in result.err or "\\u2026" in result.err


def test_near_names_are_shown(sbx: Sbx, app: str) -> None:
    assert "app" in sbx("ps", "ap-").err + sbx("ps", "apq").err


@pytest.mark.long
def test_a_taken_name_is_a_conflict_and_replace_takes_it_over(sbx: Sbx) -> None:
    first = sbx.ok("create", "twice", "-m", "512", "--json").json
    taken = sbx("--json", "create", "twice", "-m", "512")
    assert (taken.code, taken.error["code"]) == (5, "name_taken")
    assert sbx("create", "twice", "-m", "777", "--replace", "--yes").code == 2
    assert sbx("create", "twice", "-m", "512", "--replace").code == 2
    assert sbx.ok("ps", "twice", "--json").json["id"] == first["id"]
    second = sbx.ok("create", "twice", "-m", "512", "--replace", "--yes", "--json").json
    assert second["id"] != first["id"]
    sbx.ok("rm", "twice", "--yes")


@pytest.mark.long
def test_a_prefix_that_fits_two_is_ambiguous_and_names_them(sbx: Sbx) -> None:
    for name in ("pre-one", "pre-two"):
        sbx.ok("create", name, "-m", "512")
    result = sbx("--json", "ps", "pre-")
    assert (result.code, result.error["code"]) == (5, "ambiguous")
    assert "pre-one" in json.dumps(result.error)
    assert sbx.ok("ps", "pre-o", "--json").json["name"] == "pre-one"
    sbx.ok("rm", "pre-*", "--yes")


def test_a_destructive_verb_without_a_person_or_yes_does_nothing(sbx: Sbx, app: str) -> None:
    refused = sbx("--json", "rm", app)
    assert (refused.code, refused.error["code"]) == (2, "usage")
    assert "--yes" in refused.error["hint"]
    assert sbx.ok("rm", app, "--dry-run").out == app
    assert sbx.ok("ps", app, "--json").json["state"] == "RUNNING"


def test_a_home_that_cannot_be_made_is_named(sbx: Sbx, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = Sbx(tmp_path / "file" / "home", cwd=tmp_path)
    result = broken("--json", "ls")
    assert result.code == 1
    assert str(tmp_path / "file") in result.error["message"]
    assert "SBX_HOME" in result.error["hint"]


def test_expired_or_foreign_credentials_of_a_context_are_a_permission_error(sbx: Sbx) -> None:
    cloud = sbx.ok("local", "env", "--json").json
    sbx.ok("context", "add", "foreign", "--region", "local-1", "--endpoint-url", cloud["AWS_ENDPOINT_URL_STS"])
    wrong = Sbx(sbx.home, {"AWS_ACCESS_KEY_ID": "AKIAWRONG", "AWS_SECRET_ACCESS_KEY": "wrong"})
    result = wrong("--json", "--context", "foreign", "ls")
    assert (result.code, result.error["code"]) == (6, "access_denied")
    none = sbx("--json", "--context", "foreign", "ls")
    assert (none.code, none.error["code"]) == (6, "access_denied")


def test_a_control_plane_that_does_not_answer_is_unreachable(sbx: Sbx) -> None:
    sbx.ok("context", "add", "gone", "--region", "us-east-1", "--endpoint-url", "http://127.0.0.1:9")
    keyed = Sbx(sbx.home, {"AWS_ACCESS_KEY_ID": "AKIAX", "AWS_SECRET_ACCESS_KEY": "x"})
    result = keyed("--json", "--context", "gone", "ls")
    assert (result.code, result.error["retryable"]) == (7, True)
