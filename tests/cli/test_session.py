"""The session of the README, through the command line, with the real boto3 underneath."""

from __future__ import annotations

from pathlib import Path

from tests.support.sbx import Sbx


def test_a_person_creates_works_suspends_resumes_and_removes(sbx: Sbx, tmp_path: Path) -> None:
    assert sbx.ok("ls").out == ""
    assert sbx.ok("create", "app", "--memory", "512").out == "app"
    [row] = sbx.ok("ls", "--json").json
    assert (row["name"], row["state"], row["network"]) == ("app", "RUNNING", "none")

    assert sbx.ok("exec", "app", "--", "python", "-c", "print('hello from', 6 * 7)").out == "hello from 42"
    assert sbx("exec", "app", "--", "sh", "-c", "exit 7").code == 7

    (tmp_path / "in.bin").write_bytes(bytes(range(256)) * 1000)
    sbx.ok("cp", str(tmp_path / "in.bin"), "app:data.bin")
    sbx.ok("cp", "app:/work/data.bin", str(tmp_path / "out.bin"))
    assert (tmp_path / "out.bin").read_bytes() == (tmp_path / "in.bin").read_bytes()

    sbx.ok("stop", "app")
    assert sbx.ok("ls", "--json").json[0]["state"] == "SUSPENDED"
    stopped = sbx("exec", "--json", "app", "--", "true")
    assert (stopped.code, stopped.error["code"]) == (125, "conflict")
    assert "sbx start app" in stopped.error["hint"]

    sbx.ok("start", "app")
    assert sbx.ok("fs", "cat", "app", "data.bin").stdout == (tmp_path / "in.bin").read_bytes()
    sbx.ok("rm", "app", "--yes")
    assert sbx.ok("ls", "--json", "--all").json == []


def test_a_one_shot_leaves_nothing(sbx: Sbx) -> None:
    result = sbx.ok("run", "-m", "512", "--", "sh", "-c", "echo out; echo err >&2")
    assert (result.out, result.err.strip().endswith("err")) == ("out", True)
    assert sbx("run", "-m", "512", "--", "sh", "-c", "kill -TERM $$").code == 143
    assert sbx.ok("ls", "--json").json == []
