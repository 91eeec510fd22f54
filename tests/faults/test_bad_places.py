"""Broken surroundings: each is a clear error by the contract, and nothing is lost."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.sbx import Sbx

pytestmark = pytest.mark.long


def store_file(sbx: Sbx) -> Path:
    """The store of a home."""
    return sbx.home / "state" / "store.db"


def test_a_runtime_that_is_not_here_is_named_with_a_remedy(fresh: Sbx) -> None:
    result = Sbx(fresh.home, {"SBX_ISOLATION": "no-such-runtime"})("--json", "create", "x")
    assert (result.code, result.stdout) == (7, b"")
    assert "no-such-runtime" in result.error["message"]
    assert fresh.ok("ls", "--json").json == []


def test_no_isolation_is_never_chosen_by_itself_and_is_said_aloud(fresh: Sbx) -> None:
    bare = Sbx(fresh.home, {"SBX_ISOLATION": "process"})
    created = bare.ok("create", "bare", "-m", "512", "--json").json
    assert "NOT isolated" in created["isolation"]
    assert "NOT isolated" in bare.ok("local", "status", "--json").json["isolation"]
    # It shares our files, so its commands start in a folder of its own and not in whatever `/work` is here.
    assert bare.ok("exec", "bare", "--", "pwd").out.startswith(("/var/lib/sbx/", str(fresh.home)))


def test_a_store_of_a_newer_sbx_is_refused_and_left_alone(fresh: Sbx) -> None:
    fresh.ok("context", "add", "kept", "--region", "us-east-1")
    with closing(sqlite3.connect(store_file(fresh))) as database, database:
        [version] = database.execute("PRAGMA user_version").fetchone()
        database.execute("PRAGMA user_version = 999")
        database.execute("UPDATE meta SET value = '999' WHERE key = 'min_reader'")
    result = fresh("--json", "ls")
    assert (result.code, result.error["code"]) == (1, "store_too_new")
    with closing(sqlite3.connect(store_file(fresh))) as database, database:
        database.execute(f"PRAGMA user_version = {version}")
        database.execute("UPDATE meta SET value = '1' WHERE key = 'min_reader'")
    assert "kept" in {row["name"] for row in fresh.ok("context", "ls", "--json").json}


def test_a_damaged_store_is_kept_aside_and_its_sandboxes_can_be_adopted(fresh: Sbx) -> None:
    sandbox_id = fresh.ok("create", "precious", "-m", "512", "--json").json["id"]
    for file in store_file(fresh).parent.glob("store.db*"):
        if file.name != "store.db":
            file.unlink()
    store_file(fresh).write_bytes(b"not a database at all, whatever it was before" * 100)
    listed = fresh.ok("ls", "--json")
    assert listed.err.count("was damaged") == 1
    assert "note: the store" in listed.err
    assert [(row["id"], row["tracked"]) for row in listed.json] == [(sandbox_id, False)]
    assert fresh.ok("adopt", sandbox_id).out == "precious"
    assert fresh.ok("exec", "precious", "--", "echo", "back").out == "back"


def test_a_token_the_endpoint_refuses_is_replaced_by_itself(sbx: Sbx, app: str) -> None:
    with closing(sqlite3.connect(store_file(sbx))) as database, database:
        assert database.execute("UPDATE tokens SET value = 'stale'").rowcount == 1
    assert sbx.ok("exec", app, "--", "echo", "fresh token").out == "fresh token"


def test_taken_ports_are_told_or_avoided_and_every_sandbox_comes_back(sbx: Sbx, app: str) -> None:
    endpoint = sbx.ok("inspect", app, "--json").json["endpoint"]
    api_port = int(sbx.ok("local", "status", "--json").json["endpoint_url"].rpartition(":")[2])
    sbx.ok("local", "stop")
    with closing(socket.create_server(("127.0.0.1", api_port))):
        assert sbx.ok("local", "env", "--json").json["AWS_ENDPOINT_URL_STS"] != f"http://127.0.0.1:{api_port}"
        assert sbx.ok("exec", app, "--", "echo", "reached").out == "reached"
    sbx.ok("local", "stop")
    with closing(socket.create_server(("127.0.0.1", int(endpoint.rpartition(":")[2])))):
        assert sbx.ok("ls", "--json").json[0]["name"] == app
    sbx.ok("local", "stop")
    assert sbx.ok("exec", app, "--", "echo", "again").out == "again"


def test_two_people_at_once_share_one_cloud_and_one_gets_the_name(fresh: Sbx) -> None:
    rivals = [fresh.spawn("--json", "create", "same", "-m", "512") for _ in range(3)]
    codes = sorted(rival.wait(60) for rival in rivals)
    for rival in rivals:
        rival.communicate()
    assert codes == [0, 5, 5]
    assert [row["name"] for row in fresh.ok("ls", "--json").json] == ["same"]


def test_a_lost_or_spoilt_cloud_file_comes_back(sbx: Sbx, app: str) -> None:
    cloud_file = sbx.home / "state" / "local" / "cloud.json"
    pid = sbx.ok("local", "status", "--json").json["pid"]
    cloud_file.unlink()
    assert sbx.ok("exec", app, "--", "echo", "found").out == "found"
    cloud_file.write_text("not what it was")
    assert sbx.ok("ls", "--json").json[0]["state"] == "RUNNING"
    assert sbx.ok("local", "status", "--json").json["pid"] == pid
