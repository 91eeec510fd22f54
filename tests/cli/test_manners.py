"""Small promises of the command line that scripts and hands rely on."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sbx import Sbx, is_running_in


def test_a_command_that_ends_does_not_wait_for_our_standard_input(sbx: Sbx, app: str) -> None:
    with sbx.spawn("exec", "-i", app, "--", "head", "-c", "5", stdin=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(b"hello and more")
        running.stdin.flush()
        # Its standard input stays open: a pipe whose other end never closes.
        assert running.wait(30) == 0
        assert running.stdout is not None
        assert running.stdout.read() == b"hello"


def test_input_arrives_byte_exact_and_ends(sbx: Sbx, app: str) -> None:
    data = os.urandom(300_000)
    assert sbx.ok("exec", "-i", app, "--", "cat", stdin=data).stdout == data
    assert sbx.ok("exec", "-i", app, "--", "wc", "-l", stdin=b"a\nb\n").out.strip() == "2"
    assert sbx.ok("exec", app, "--", "cat", stdin=b"not passed on").stdout == b""


def test_a_reader_that_leaves_ends_the_command_in_the_sandbox(sbx: Sbx, app: str) -> None:
    line = f"{sys.executable} -m sbxtui exec {app} -- yes left-behind | head -n 1"
    subprocess.run(["bash", "-c", line], env=sbx.environment(), capture_output=True, timeout=60, check=True)
    assert not is_running_in(sbx, app, "yes left-behind")


def test_waiting_for_the_end_waits_for_it(sbx: Sbx) -> None:
    sbx.ok("create", "brief", "-m", "512")
    with sbx.spawn("wait", "brief", "--for", "terminated") as waiting:
        sbx.ok("rm", "brief", "--yes")
        assert waiting.wait(30) == 0


@pytest.mark.parametrize("keys", ["-age", "age,-name"])
def test_sorting_can_run_backwards(sbx: Sbx, app: str, keys: str) -> None:
    assert app in sbx.ok("ls", "-q", "--sort", keys).out.split()


@pytest.mark.long
def test_every_verb_has_a_document_under_json(sbx: Sbx, app: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    lines = [
        ["fs", "mkdir", app, "made"],
        ["cp", str(tmp_path / "file"), f"{app}:made/file"],
        ["fs", "cp", app, "made/file", "made/copy"],
        ["fs", "mv", app, "made/copy", "made/moved"],
        ["fs", "ls", app, "made"],
        ["fs", "stat", app, "made/file"],
        ["fs", "rm", app, "made/moved"],
        ["cp", f"{app}:made/file", str(tmp_path / "back")],
        ["context", "use", "local"],
        ["context", "ls"],
        ["label", app, "team=blue"],
        ["ps", app],
        ["inspect", app],
        ["doctor"],
        ["local", "status"],
        ["local", "env"],
        ["local", "reset", "--dry-run"],
        ["prune", "--dry-run"],
        ["runner", "status"],
        ["runner", "stop"],
        ["exec", app, "--", "true"],
    ]
    for words in lines:
        assert sbx.ok("--json", *words).json is not None, words


def test_the_commands_own_flags_are_not_ours(sbx: Sbx, app: str) -> None:
    assert sbx.ok("exec", app, "--", "echo", "--json", "--debug", "-q").out == "--json --debug -q"
    failed = sbx("exec", app, "--cwd", "/nowhere", "--", "true", "--debug")
    assert "Traceback" not in failed.err


@pytest.mark.long
def test_copies_follow_the_rules_of_cp(sbx: Sbx, app: str, tmp_path: Path) -> None:
    source = tmp_path / "söurce dir"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a file").write_bytes(b"\x00\xff")
    (source / "sub" / "a file").chmod(0o751)
    sbx.ok("cp", "-r", str(source), f"{app}:copied")
    sbx.ok("cp", "-r", str(source), f"{app}:copied")
    listed = sbx.ok("exec", app, "--", "sh", "-c", "cd copied && find . -type f | sort").out.splitlines()
    assert listed == ["./sub/a file", "./söurce dir/sub/a file"]
    assert sbx.ok("exec", app, "--", "stat", "-c", "%a", "copied/sub/a file").out == "751"

    back = tmp_path / "back"
    back.mkdir()
    sbx.ok("cp", "-r", f"{app}:copied/sub", str(back))
    assert (back / "sub" / "a file").read_bytes() == b"\x00\xff"
    assert (back / "sub" / "a file").stat().st_mode & 0o777 == 0o751

    assert sbx("cp", str(source), f"{app}:x").code == 2
    assert sbx("cp", f"{app}:no-such", str(tmp_path)).code == 4
    assert sbx("cp", "-r", f"{app}:copied/..", str(back)).code == 2
    assert sbx("cp", f"{app}:copied/sub/a file", str(tmp_path / "missing" / "x")).code == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_hangs_up_ends_the_command(sbx: Sbx, app: str, number: signal.Signals) -> None:
    with sbx.spawn("exec", app, "--", "sh", "-c", "echo up; exec sleep 4243") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        running.send_signal(number)
        assert running.wait(30) == 128 + number
    assert not is_running_in(sbx, app, "sleep 4243")


@pytest.mark.long
def test_full_outputs_are_no_fault_of_ours(sbx: Sbx, app: str) -> None:
    def shell(line: str) -> subprocess.CompletedProcess[str]:
        command = line.replace("sbx", f"{sys.executable} -m sbxtui")
        return subprocess.run(
            ["bash", "-c", command], env=sbx.environment(), capture_output=True, text=True, timeout=60, check=False
        )

    for line in ("ls", "--help", "inspect " + app, "fs cat " + app + " /etc/passwd"):
        full = shell(f"sbx {line} > /dev/full")
        assert (full.returncode, full.stderr.splitlines()[0]) == (1, "error: standard output: No space left on device")
        assert "hint: what was to be written there is cut short" in full.stderr


def test_a_deleted_working_folder_does_not_matter(sbx: Sbx, app: str, tmp_path: Path) -> None:
    line = f"mkdir {tmp_path}/gone && cd {tmp_path}/gone && rmdir {tmp_path}/gone && {sys.executable} -m sbxtui ls -q"
    done = subprocess.run(["bash", "-c", line], env=sbx.environment(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, app.encode() in done.stdout) == (0, True)


def test_nothing_shown_is_not_called_nothing_there(sbx: Sbx, app: str) -> None:
    assert "no sandboxes" not in sbx.ok("ls", "--filter", "state:suspended").err


def test_a_command_that_never_started_left_nothing_running(sbx: Sbx, app: str) -> None:
    results = [sbx("--json", "exec", app, "--", "no-such-program") for _ in range(3)]
    assert [(one.code, one.json["lingering"]) for one in results] == [(127, False)] * 3


def test_what_cannot_be_done_is_said_and_not_ignored(sbx: Sbx, app: str, tmp_path: Path) -> None:
    refused = sbx("--json", "exec", "-it", app, "bash")
    assert (refused.code, refused.error["code"]) == (125, "usage")
    assert sbx("cp", f"{app}:x", "-", timeout_s=30).code == 2
    assert sbx("create", "x", "--env", "A B=1").code == 2
    assert sbx("create", "x", "--label", "a=" + "x" * 70_000).code == 2


def test_labels_that_are_too_many_in_sum_are_refused_by_what_makes_them(sbx: Sbx, app: str) -> None:
    labels = [f"key{number}={'x' * 1_000}" for number in range(70)]
    made = sbx("--json", "create", "x", *(word for label in labels for word in ("--label", label)))
    changed = sbx("--json", "label", app, *labels)
    for refused in (made, changed):
        assert (refused.code, refused.error["code"]) == (2, "usage")
        assert "labels" in refused.error["message"]
    assert [row["name"] for row in sbx.ok("ls", "--json").json if row["name"] == "x"] == []


@pytest.mark.long
def test_a_machine_without_a_name_is_removed_with_a_document_under_json(sbx: Sbx) -> None:
    sandbox_id = sbx.ok("--json", "create", "nameless", "-m", "512").json["id"]
    with contextlib.closing(sqlite3.connect(sbx.home / "state" / "store.db", isolation_level=None)) as store:
        store.execute("DELETE FROM registrations WHERE name = 'nameless'")
    would, did = (sbx.ok("--json", "rm", sandbox_id, word).json for word in ("--dry-run", "--yes"))
    assert would == [{"name": sandbox_id, "ok": True, "message": "would be removed"}]
    assert [(one["name"], one["ok"]) for one in did] == [(sandbox_id, True)]
    assert sandbox_id not in [row["id"] for row in sbx.ok("ls", "--json").json]


@pytest.mark.long
def test_forks_that_run_away_in_the_background_leave_the_sandbox_answering(sbx: Sbx) -> None:
    sbx.ok("create", "bomb", "-m", "512")
    sbx("exec", "bomb", "--", "sh", "-c", "(f(){ f|f& }; f) 2>/dev/null & sleep 1")
    assert sbx.ok("exec", "bomb", "--", "echo", "alive").out == "alive"
    sbx.ok("rm", "bomb", "--yes")


@pytest.mark.long
def test_several_files_are_each_tried_as_cat_and_rm_do(sbx: Sbx, app: str) -> None:
    sbx.ok("fs", "mkdir", app, "several")
    for name in ("one", "two"):
        sbx.ok("fs", "write", app, f"several/{name}", stdin=name.encode())
    paths = ["several/one", "several/not-there", "several/two"]
    printed = sbx("fs", "cat", app, *paths)
    assert (printed.code, printed.stdout) == (4, b"onetwo")
    assert printed.err == "error: /work/several/not-there: No such file or directory\n"
    told = sbx("--json", "fs", "stat", app, *paths)
    assert (told.code, [one["path"] for one in told.json]) == (4, ["/work/several/one", "/work/several/two"])
    assert told.error["code"] == "file_not_found"
    removed = sbx("--json", "fs", "rm", app, *paths)
    assert (removed.code, removed.json["paths"]) == (4, ["several/one", "several/two"])
    for refused in (sbx("fs", "rm", app, "several"), sbx("fs", "cp", app, "several", "other")):
        assert (refused.code, refused.err.startswith("error: several is a folder\n\nhint: add -r to ")) == (2, True)
    made = sbx("fs", "mkdir", app, "/etc/no", "several/yes")
    assert (made.code, sbx.ok("fs", "ls", app, "several", "-q").out) == (6, "yes")


@pytest.mark.parametrize("words", [("--region", "eu-west-1"), ("--profile", "work")])
def test_flags_of_aws_are_told_to_be_left_out_on_this_machine(sbx: Sbx, words: tuple[str, str]) -> None:
    assert f"{words[0]} left out" in sbx.ok("ls", *words).err
    assert "left out" not in sbx.ok("context", "ls", *words).err


def test_a_label_is_one_plain_line(sbx: Sbx, app: str) -> None:
    for line in (("label", app, "a\nb=c"), ("create", "--label", "a=\x1b[31m")):
        assert sbx(*line).code == 2
