"""`sbx sync` as people and scripts use it, with a real sandbox."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.sbx import DEADLINE_S, Sbx

pytestmark = pytest.mark.long


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.txt").write_text("base\n")
    return folder


@pytest.fixture(autouse=True)
def ends_its_sync(sbx: Sbx, app: str) -> Iterator[None]:
    """Each test begins with an empty work folder and no link."""
    sbx.ok("exec", app, "--no-flush", "--", "sh", "-c", "rm -rf ./* ./.[a-r]* ./.[t-z]*")
    yield
    sbx("sync", "stop", app)


@contextmanager
def live(sbx: Sbx, app: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A link in the foreground that watches already."""
    process = sbx.spawn("sync", app, *words)
    try:
        until(lambda: sbx("sync", "status", app, "--json").code == 0 and state(sbx, app) == "watching")
        yield process
    finally:
        process.kill()
        process.communicate()


def until(is_so: object) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.1)


def state(sbx: Sbx, app: str) -> str:
    return str(sbx.ok("sync", "status", app, "--json").json["state"])


def cat(sbx: Sbx, app: str, path: str) -> str:
    return sbx.ok("exec", app, "--", "cat", path).out


def test_a_folder_is_carried_over_once_and_what_differs_is_told(sbx: Sbx, app: str, project: Path) -> None:
    first = sbx.ok("sync", app, str(project), "--once", "--json").json
    assert (first["pushed"], first["entries"], first["state"]) == (2, 2, "ended")
    assert cat(sbx, app, "src/a.txt") == "base"
    assert sbx.ok("sync", "--once", app, str(project), "--json").json["pushed"] == 0
    sbx.ok("exec", app, "--", "sh", "-c", "echo theirs > src/a.txt")
    (project / "src" / "a.txt").write_text("mine\n")
    result = sbx("sync", app, str(project), "--once", "--json")
    assert (result.code, result.error["code"], result.error["details"]["conflicts"]) == (
        10,
        "incomplete",
        ["src/a.txt"],
    )
    (conflict,) = sbx.ok("sync", "conflicts", app, "--json").json
    assert (conflict["path"], conflict["local"]["size_bytes"], conflict["guest"]["size_bytes"]) == ("src/a.txt", 5, 7)


def test_exec_sees_what_was_saved_before_it_and_the_link_ends_with_its_process(
    sbx: Sbx, app: str, project: Path
) -> None:
    with live(sbx, app, str(project)) as process:
        for number in range(3):
            (project / "src" / "a.txt").write_text(f"{number}\n")
            assert cat(sbx, app, "src/a.txt") == str(number)
        (listed,) = sbx.ok("sync", "ls", "--json").json
        assert (listed["sandbox"], listed["running"], listed["root"]) == (app, True, str(project))
        again = sbx("sync", app, str(project))
        assert (again.code, "already" in again.err) == (5, True)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    assert state(sbx, app) == "not running"
    (project / "src" / "a.txt").write_text("later\n")
    assert cat(sbx, app, "src/a.txt") == "2"
    assert sbx.ok("sync", "flush", app, "--json").json["pushed"] == 1
    assert cat(sbx, app, "src/a.txt") == "later"


def test_a_link_that_was_killed_is_taken_up_again_and_nothing_is_sent_twice(sbx: Sbx, app: str, project: Path) -> None:
    with live(sbx, app, str(project)) as process:
        process.kill()
        process.wait()
        (project / "new.txt").write_text("n\n")
        (project / "src" / "a.txt").unlink()
        assert sbx.ok("sync", app, str(project), "--once", "--json").json["pushed"] == 2
    assert sbx.ok("exec", app, "--", "find", ".", "-name", "*.txt").out == "./new.txt"


def test_what_an_agent_did_is_reviewed_taken_over_and_taken_back(sbx: Sbx, app: str, project: Path) -> None:
    sbx.ok("sync", app, str(project), "--once")
    line = "echo agent > src/a.txt; mkdir out; echo x > out/y; echo run > package.json; ln -s /etc/passwd bad"
    sbx.ok("exec", app, "--", "sh", "-c", line)
    dry = sbx("sync", "pull", app, "--dry-run", "--json")
    assert dry.code == 10
    assert {one["path"]: (one["change"], one["may_run"]) for one in dry.json["changes"]} == {
        "out": ("folder", False),
        "out/y": ("new", False),
        "package.json": ("new", True),
        "src/a.txt": ("edited", False),
    }
    assert dry.json["failed"] == [{"path": "bad", "code": "unsafe_link"}]
    patch = sbx.ok("sync", "diff", app, "src").stdout
    subprocess.run(["git", "apply", "--check"], input=patch, cwd=project, check=True, timeout=30)
    unasked = sbx("sync", "pull", app)
    assert (unasked.code, (project / "out").exists()) == (2, False)
    sbx.ok("sync", "pull", app, "--yes", "src")
    assert (project / "src" / "a.txt").read_text() == "agent\n"
    assert not (project / "out").exists()
    sbx("sync", "pull", app, "--yes")
    assert (project / "out" / "y").read_text() == "x\n"
    assert not (project / "bad").is_symlink()
    sbx.ok("sync", "undo", app, "--yes")
    sbx.ok("sync", "undo", app, "--yes")
    assert (project / "src" / "a.txt").read_text() == "base\n"
    assert not (project / "out").exists()


def test_what_cannot_be_taken_back_is_named_and_stands_in_the_way_of_nothing_before_it(
    sbx: Sbx, app: str, project: Path
) -> None:
    (project / "b.txt").write_text("base\n")
    sbx.ok("sync", app, str(project), "--once")
    for name in ("b.txt", "src/a.txt"):
        sbx.ok("exec", app, "--no-flush", "--", "sh", "-c", f"echo agent > {name}")
        sbx.ok("sync", "pull", app, "--yes")
    (project / "src" / "a.txt").write_text("since then\n")
    left = sbx("sync", "undo", app, "--yes")
    assert (left.code, "src/a.txt (changed_meanwhile)" in left.err, "--again" in left.err) == (10, True, True)
    sbx.ok("sync", "undo", app, "--yes")
    assert (project / "b.txt").read_text() == "base\n"
    again = sbx("sync", "undo", app, "--yes")
    assert (again.code, "--again" in again.err) == (4, True)
    (project / "src" / "a.txt").write_text("agent\n")
    sbx.ok("sync", "undo", app, "--yes", "--again")
    assert (project / "src" / "a.txt").read_text() == "base\n"


def test_what_an_agent_did_is_had_as_a_branch_or_a_patch(sbx: Sbx, app: str, project: Path) -> None:
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"]):
        subprocess.run(["git", "-C", project, *words], check=True, timeout=60)
    sbx.ok("sync", app, str(project), "--once")
    sbx.ok("exec", app, "--", "sh", "-c", "echo agent > src/a.txt")
    patch = project.parent / "agent.patch"
    done = sbx.ok("sync", "pull", app, "--as-branch", "agent/1", "--as-patch", str(patch))
    assert "agent/1" in done.err
    assert (project / "src" / "a.txt").read_text() == "base\n"
    shown = subprocess.run(
        ["git", "-C", project, "show", "agent/1:src/a.txt"], capture_output=True, text=True, timeout=60
    )
    assert shown.stdout == "agent\n"
    subprocess.run(["git", "-C", project, "apply", "--check", patch], check=True, timeout=60)
    assert sbx("sync", "pull", app, "--as-branch", "agent/1").code == 5
    assert sbx("sync", "pull", app, "--as-patch", str(patch)).code == 5
    subprocess.run(["git", "-C", project, "apply", patch], check=True, timeout=60)
    assert sbx.ok("sync", "pull", app, "--dry-run", "--json").json["changes"] == []


def test_a_conflict_keeps_both_versions_where_that_is_asked_for(sbx: Sbx, app: str, project: Path) -> None:
    sbx.ok("sync", app, str(project), "--once")
    sbx.ok("exec", app, "--", "sh", "-c", "echo theirs > src/a.txt")
    (project / "src" / "a.txt").write_text("mine\n")
    assert sbx("sync", "resolve", app, "src/a.txt", "--keep", "both", "--local").code == 2
    assert sbx("sync", "resolve", app, "src/a.txt", "--merge").code == 5
    sbx.ok("sync", "resolve", app, "src/a.txt", "--keep", "both")
    assert cat(sbx, app, "src/a.txt") == "mine" and cat(sbx, app, "src/a.sandbox.txt") == "theirs"
    assert (project / "src" / "a.sandbox.txt").read_text() == "theirs\n"


@pytest.mark.parametrize(("side", "content"), [("--local", "mine"), ("--guest", "theirs")])
def test_a_conflict_is_decided_for_one_side(sbx: Sbx, app: str, project: Path, side: str, content: str) -> None:
    sbx.ok("sync", app, str(project), "--once")
    sbx.ok("exec", app, "--", "sh", "-c", "echo theirs > src/a.txt")
    (project / "src" / "a.txt").write_text("mine\n")
    assert sbx("sync", "resolve", app, "src/a.txt").code == 2
    assert sbx("sync", "resolve", app, "src/b.txt", "--local").code == 4
    sbx.ok("sync", "resolve", app, "src/a.txt", side)
    assert (project / "src" / "a.txt").read_text() == f"{content}\n"
    assert cat(sbx, app, "src/a.txt") == content
    assert sbx.ok("sync", "conflicts", app, "--json").json == []


@pytest.mark.slow
def test_a_folder_that_is_gone_halts_a_running_link_and_resume_deletes_nothing(
    sbx: Sbx, app: str, project: Path
) -> None:
    for number in range(5):
        (project / f"f{number}").write_text("x")
    with live(sbx, app, str(project)):
        project.rename(project.with_name("elsewhere"))
        until(lambda: state(sbx, app) == "halted")
        flushed = sbx("exec", app, "--", "true")
        assert (flushed.code, "no-flush" in flushed.err) == (125, True)
        project.mkdir()
        (project / "new").write_text("n")
        sbx.ok("sync", "resume", app)
        until(lambda: state(sbx, app) == "watching")
        assert sbx.ok("exec", app, "--", "sh", "-c", "ls | wc -l").out.strip() == "7"


@pytest.mark.slow
def test_a_suspended_sandbox_gets_what_was_saved_meanwhile(sbx: Sbx, app: str, project: Path) -> None:
    with live(sbx, app, str(project)):
        sbx.ok("stop", app)
        (project / "src" / "a.txt").write_text("meanwhile\n")
        (project / "src" / "b.txt").write_text("b\n")
        sbx.ok("start", app)
        until(lambda: sbx.ok("exec", app, "--no-flush", "--", "cat", "src/a.txt").out == "meanwhile")
        assert cat(sbx, app, "src/b.txt") == "b"


@pytest.mark.slow
def test_two_way_takes_over_by_itself_what_a_command_writes(sbx: Sbx, app: str, project: Path) -> None:
    with live(sbx, app, str(project), "--mode", "two-way"):
        sbx.ok("exec", app, "--", "sh", "-c", "mkdir -p deep/er; echo made > deep/er/f; rm src/a.txt")
        until(lambda: (project / "deep" / "er" / "f").exists() and not (project / "src" / "a.txt").exists())
        assert (project / "deep" / "er" / "f").read_text() == "made\n"


@pytest.mark.slow
def test_a_link_is_paused_gone_on_with_and_ended(sbx: Sbx, app: str, project: Path) -> None:
    with live(sbx, app, str(project)) as process:
        sbx.ok("sync", "pause", app)
        assert state(sbx, app) == "paused"
        (project / "paused").write_text("x")
        assert sbx("exec", app, "--", "test", "-e", "paused").code == 1
        sbx.ok("sync", "resume", app)
        until(lambda: sbx("exec", app, "--", "test", "-e", "paused").code == 0)
        sbx.ok("sync", "stop", app)
        assert process.wait(DEADLINE_S) == 0
    assert sbx("sync", "status", app).code == 4
    assert sbx.ok("sync", "ls", "--json").json == []


def test_a_folder_named_for_the_first_time_is_made_and_git_sees_nothing_of_ours(
    sbx: Sbx, app: str, project: Path
) -> None:
    sbx.ok("sync", app, str(project), "--once", "--to", "new/place")
    assert cat(sbx, app, "new/place/src/a.txt") == "base"
    sbx.ok("sync", "stop", app)
    sbx.ok("sync", app, str(project), "--once")
    sbx.ok("sync", "stop", app)
    seen = sbx.ok("exec", app, "--", "sh", "-c", "git init -q . && git add -A && git ls-files").out
    assert "src/a.txt" in seen
    assert "sbx-stage" not in seen


def test_mistakes_are_told_before_anything_is_done(sbx: Sbx, app: str, project: Path) -> None:
    assert sbx("sync", app, str(project / "nothing")).code == 2
    assert sbx("sync", app, str(project / "src" / "a.txt")).code == 2
    assert sbx("sync", "nobody", str(project)).code == 4
    assert sbx("sync", "pull", app).code == 4
    sbx.ok("sync", app, str(project), "--once")
    other = sbx("sync", app, str(project / "src"))
    assert (other.code, "sync stop" in other.err) == (5, True)
    assert sbx("sync", "diff", app, "../x").code == 2
    assert sbx("sync", app, str(project), "--to", "/proc", "--once").code == 5


@pytest.mark.slow
def test_a_detached_sync_goes_on_under_another_name_and_ends_with_its_sandbox(sbx: Sbx, project: Path) -> None:
    sbx.ok("create", "gone", "--memory", "512")
    sbx.ok("exec", "gone", "--", "sh", "-c", "echo theirs > new.txt")
    sbx.ok("sync", "gone", str(project), "--detach")
    until(lambda: state(sbx, "gone") == "watching")
    refused = sbx("rm", "gone")
    assert (refused.code, "1 change that nobody took over" in refused.err) == (2, True)
    sbx.ok("rename", "gone", "away")
    (project / "renamed").touch()
    until(lambda: sbx("exec", "away", "--no-flush", "--", "test", "-e", "renamed").code == 0)
    assert [one["sandbox"] for one in sbx.ok("sync", "ls", "--json").json] == ["away"]
    sbx.ok("rm", "away", "--yes")
    assert sbx.ok("sync", "ls", "--json").json == []
    (project / "after").touch()
    until(lambda: not list((sbx.home / "state" / "sync").iterdir()))


def test_events_tell_who_synced(sbx: Sbx, app: str, project: Path) -> None:
    sbx.ok("sync", app, str(project), "--once")
    sbx.ok("sync", "stop", app)
    kinds = [json.loads(line)["kind"] for line in sbx.ok("events", app, "--json", "--tail", "8").stdout.splitlines()]
    assert [kind for kind in kinds if kind.startswith("sync.")][-2:] == ["sync.stopped", "sync.stop"]
    assert os.fspath(project) in sbx.ok("events", app, "--json", "--tail", "50").out


@pytest.mark.slow
def test_a_detached_sync_outlives_its_face_the_runner_and_the_process_that_acts_on_it(
    sbx: Sbx, app: str, project: Path
) -> None:
    sbx.ok("sync", app, str(project), "--detach")
    until(lambda: state(sbx, app) == "watching")
    assert cat(sbx, app, "src/a.txt") == "base"
    for victim in ("acting", "runner", "both"):
        acting, runner = acting_pid(sbx), int(sbx.ok("runner", "status", "--json").json["pid"])
        for pid in {"acting": [acting], "runner": [runner], "both": [runner, acting]}[victim]:
            os.kill(pid, signal.SIGKILL)
        (project / "src" / "a.txt").write_text(f"after {victim}\n")
        if victim == "both":
            sbx.ok("sync", "resume", app)
        until(lambda word=victim: sbx.ok("exec", app, "--no-flush", "--", "cat", "src/a.txt").out == f"after {word}")
        until(lambda: state(sbx, app) == "watching")
    sbx.ok("sync", "pause", app)
    until(lambda: state(sbx, app) == "paused")
    sbx.ok("sync", "stop", app)
    assert sbx.ok("sync", "ls", "--json").json == []


def acting_pid(sbx: Sbx) -> int:
    """The process that holds the lock of those that act on syncs."""
    lock = (sbx.home / "state" / "syncs.lock").stat()
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].endswith(f":{lock.st_ino}") and words[0].endswith(":"):
            return int(words[4])
    raise LookupError("nobody acts on syncs")


def test_what_only_the_sandbox_has_goes_once_that_is_agreed_to_and_resume_says_so(
    sbx: Sbx, app: str, project: Path
) -> None:
    sbx.ok("exec", app, "--", "touch", "theirs")
    assert sbx("sync", app, str(project), "--mode", "mirror", "--once").code == 5
    assert "is asked about" in sbx.ok("sync", "resume", app).err
    assert sbx("sync", app, str(project), "--mode", "mirror", "--once").code == 5
    assert "goes to its trash" in sbx.ok("sync", "resume", app, "--accept-deletes").err
    sbx.ok("sync", app, str(project), "--mode", "mirror", "--once")
    assert sbx("exec", app, "--", "test", "-e", "theirs").code == 1
