"""Every state a store's file can be in when sbx starts."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sbxtui.core.errors import StoreCorrupt, StoreError, StoreTooNew
from sbxtui.home import Home
from sbxtui.store import opening, schema
from sbxtui.store.codec import utc_now
from sbxtui.store.contexts import Contexts
from sbxtui.store.db import Store
from sbxtui.store.outputs import Outputs
from sbxtui.store.registry import Registry
from tests.store.processes import ROOT, run_together
from tests.store.worker import record


def _fill(home: Home, count: int = 1) -> None:
    store = Store.open(home)
    registry = Registry(store)
    for number in range(count):
        labels = {"filler": "x" * 2_000}
        registry.adopt("local", f"box-{number}", record(f"microvm-{number}"), labels=labels, actor="test")
    store.close()


def _kept(home: Home) -> list[Path]:
    return sorted(path for path in home.state_dir.iterdir() if ".corrupt-" in path.name)


def test_a_fresh_home_is_private_to_its_user(home: Home) -> None:
    Store.open(home).close()
    assert stat.S_IMODE(home.state_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.store_file.stat().st_mode) == 0o600


def test_the_files_beside_an_open_store_are_private_too(home: Home) -> None:
    store = Store.open(home)
    Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.state_dir.iterdir()}
    assert set(modes.values()) == {0o600}
    store.close()


def test_an_older_file_gets_what_it_lacks_and_keeps_what_it_has(home: Home) -> None:
    home.state_dir.mkdir(parents=True)
    connection = sqlite3.connect(home.store_file, isolation_level=None)
    schema.migrate(connection, schema.MIGRATIONS[:1])
    connection.execute("INSERT INTO contexts VALUES ('work', 'aws', 'eu-west-1', '', '', '', '2026-01-01')")
    connection.close()

    store = Store.open(home)

    assert Contexts(store).get("work").region == "eu-west-1"
    Outputs(store).set("work", {"image_arn": "arn:x"}, source="test", actor="test")
    assert Outputs(store).get("work", "image_arn") == "arn:x"
    store.close()


def test_a_migration_that_fails_changes_nothing(home: Home) -> None:
    home.state_dir.mkdir(parents=True)
    connection = sqlite3.connect(home.store_file, isolation_level=None)
    schema.migrate(connection, schema.MIGRATIONS[:1])
    broken = (*schema.MIGRATIONS[:1], schema.Migration(1, ("CREATE TABLE fine (a)", "CREATE NONSENSE")))
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(connection, broken)
    assert schema.version_of(connection) == 1
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'fine'").fetchone() == (0,)
    connection.close()


def _make_newer(home: Home, min_reader: int) -> None:
    _fill(home)
    connection = sqlite3.connect(home.store_file, isolation_level=None)
    connection.execute("ALTER TABLE registrations ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'")
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('min_reader', ?)", (str(min_reader),))
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def test_a_newer_file_that_older_code_may_use_is_used(home: Home) -> None:
    _make_newer(home, min_reader=1)
    store = Store.open(home)
    registry = Registry(store)
    registry.adopt("local", "calm-otter", record("microvm-x"), actor="test")
    assert [row.name for row in registry.list()] == ["box-0", "calm-otter"]
    assert store.rows("PRAGMA user_version") == [(99,)]
    store.close()


def test_a_newer_file_that_older_code_would_harm_is_refused_by_name_and_untouched(home: Home) -> None:
    _make_newer(home, min_reader=98)
    before = home.store_file.read_bytes()
    with pytest.raises(StoreTooNew) as caught:
        Store.open(home)
    assert str(home.store_file) in caught.value.message
    assert "upgrade" in caught.value.hint
    assert home.store_file.read_bytes() == before
    assert _kept(home) == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"this is no database, " * 400, id="garbage"),
        pytest.param(lambda content: b"short", id="short garbage"),
        pytest.param(lambda content: content[:5_000], id="truncated"),
        pytest.param(lambda content: content[:60], id="cut inside its header"),
        pytest.param(lambda content: content[:100] + b"\xff" * (len(content) - 100), id="overwritten after its header"),
        pytest.param(lambda content: b"\x00" * len(content), id="zeroed"),
    ],
)
def test_a_damaged_file_is_kept_aside_and_a_new_one_started(home: Home, damage: object) -> None:
    _fill(home, 20)
    assert callable(damage)
    broken = damage(home.store_file.read_bytes())
    home.store_file.write_bytes(broken)

    store = Store.open(home)

    assert Registry(store).list() == []
    Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")
    assert store.notice is not None
    assert store.notice.kept_file == _kept(home)[0]
    assert store.notice.kept_file.read_bytes() == broken
    assert "adopt" in store.notice.hint
    store.close()
    again = Store.open(home)
    assert again.notice is None
    assert [row.name for row in Registry(again).list()] == ["calm-otter"]
    again.close()


def test_an_empty_file_is_a_new_store(home: Home) -> None:
    home.state_dir.mkdir(parents=True)
    home.store_file.touch()
    store = Store.open(home)
    assert store.notice is None
    assert Registry(store).list() == []
    store.close()


def test_damage_found_while_working_is_told_and_mended_at_the_next_start(home: Home) -> None:
    _fill(home, 60)
    size = home.store_file.stat().st_size
    with home.store_file.open("r+b") as stream:
        # The catalogue in the first page stays readable, what it points to does not.
        stream.seek(4_096)
        stream.write(b"\xa5" * (size - 4_096))
    store = Store.open(home)
    with pytest.raises(StoreCorrupt) as caught:
        Registry(store).list()
    assert str(home.store_file) in caught.value.message
    store.close()

    mended = Store.open(home)
    assert mended.notice is not None
    assert Registry(mended).list() == []
    mended.close()


def test_many_processes_that_find_a_damaged_file_keep_it_aside_once(home: Home) -> None:
    _fill(home)
    home.store_file.write_bytes(b"garbage" * 1_000)
    results = run_together(home, [("open_only",)] * 6)
    assert sum(found["notice"] for found in results) == 1
    assert len(_kept(home)) == 1


def test_two_damaged_files_in_one_second_are_both_kept(home: Home) -> None:
    home.state_dir.mkdir(parents=True)
    now = utc_now()
    for content in (b"first" * 500, b"second" * 500):
        home.store_file.write_bytes(content)
        opening.open_file(home.store_file, now).connection.close()
    assert [path.read_bytes()[:5] for path in _kept(home)] == [b"first", b"secon"]


def test_a_home_that_is_a_file_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a folder")
    home = Home(tmp_path, tmp_path / "state", tmp_path, tmp_path)
    with pytest.raises(StoreError) as caught:
        Store.open(home)
    assert "SBX_HOME" in caught.value.hint


def test_a_home_nobody_may_write_is_refused_with_a_remedy(tmp_path: Path) -> None:
    # /sys takes no new folders, whoever asks.
    home = Home(tmp_path, Path("/sys/kernel/sbx-test"), tmp_path, tmp_path)
    with pytest.raises(StoreError) as caught:
        Store.open(home)
    assert "/sys/kernel/sbx-test" in caught.value.message
    assert "SBX_HOME" in caught.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write read-only folders")
def test_a_read_only_home_is_refused_with_a_remedy(home: Home) -> None:
    home.state_dir.mkdir(parents=True)
    home.state_dir.chmod(0o500)
    try:
        with pytest.raises(StoreError) as caught:
            Store.open(home)
    finally:
        home.state_dir.chmod(0o700)
    assert "SBX_HOME" in caught.value.hint


def _in_own_mounts(home: Home, mount: str, action: str) -> Any:
    """Let a worker act where `mount` is in force; the mounts end with it, whatever happens."""
    worker = f"exec {sys.executable} -m tests.store.worker {home.state_dir} {action}"
    command = ["unshare", "--mount", "sh", "-c", f"{mount} || exit 77; {worker}"]
    done = subprocess.run(command, cwd=ROOT, input="go\n", capture_output=True, text=True)
    if done.returncode in (1, 77) and "ready" not in done.stdout:
        pytest.skip("this root may not mount")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.root
def test_a_read_only_file_system_is_refused_with_a_remedy(home: Home) -> None:
    _fill(home)
    folder = home.state_dir
    mount = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"
    found = _in_own_mounts(home, mount, "adopt_one")
    assert "ead-only" in found["message"]
    assert "SBX_HOME" in found["hint"]


@pytest.mark.root
def test_a_full_disk_is_told_and_loses_nothing(home: Home) -> None:
    home.state_dir.mkdir(parents=True)
    found = _in_own_mounts(home, f"mount -t tmpfs -o size=1m tmpfs {home.state_dir}", "fill_until_full")
    assert "full" in found["message"]
    assert "space" in found["hint"]
    assert found["added"] > 3
    assert found["after"] == found["kept"] == found["added"]
    assert not found["notice"]


def test_a_file_size_limit_is_told_and_loses_nothing(home: Home) -> None:
    (found,) = run_together(home, [("fill_until_full", "600000")])
    assert str(home.store_file) in found["message"]
    assert found["hint"]
    assert found["added"] > 3
    assert found["after"] == found["kept"] == found["added"]
    assert not found["notice"]


def test_a_lock_nobody_frees_is_told_after_a_while(store: Store) -> None:
    store.rows("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(store.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked too long"):
        Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")
    other.execute("ROLLBACK")
    other.close()
    Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")


def test_a_closed_store_says_so(home: Home) -> None:
    store = Store.open(home)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        Registry(store).list()


def test_opening_the_store_imports_nothing_heavy() -> None:
    script = (
        "import sys, sbxtui.store.db, sbxtui.store.registry, sbxtui.store.tokens, sbxtui.store.contexts\n"
        "print(sorted({'boto3', 'botocore', 'httpx', 'textual', 'rich', 'mcp', 'platformdirs'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
