"""SQLite's and the file system's errors in our words, and a file that changes under an open store."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from sbxtui.core.errors import StoreCorrupt, StoreError, StoreUnwritable
from sbxtui.home import Home
from sbxtui.store import failures
from sbxtui.store.db import Store
from sbxtui.store.doorbell import Listener
from sbxtui.store.registry import Registry
from tests.store.worker import record

FILE = Path("/home/somebody/.local/share/sbx/store.db")
EXTENDED_IOERR = sqlite3.SQLITE_IOERR | (3 << 8)


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (sqlite3.SQLITE_BUSY, "locked too long", "try again"),
        (sqlite3.SQLITE_LOCKED, "locked too long", "try again"),
        (sqlite3.SQLITE_FULL, "disk is full", "free some space"),
        (sqlite3.SQLITE_READONLY, "read-only", "SBX_HOME"),
        (sqlite3.SQLITE_PERM, "may not be written", "SBX_HOME"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened", "permissions"),
        (sqlite3.SQLITE_PROTOCOL, "no working locks", "disk of this machine"),
        (sqlite3.SQLITE_NOLFS, "large files", "disk of this machine"),
        (EXTENDED_IOERR, "disk failed", "network file system"),
        (sqlite3.SQLITE_CORRUPT, "damaged", "keeps the file aside"),
        (sqlite3.SQLITE_NOTADB, "damaged", "keeps the file aside"),
        (sqlite3.SQLITE_AUTH, "strange", "sbx doctor"),
    ],
)
def test_every_error_of_sqlite_names_the_file_and_a_remedy(code: int, message: str, hint: str) -> None:
    error = sqlite3.OperationalError("strange")
    error.sqlite_errorcode = code
    found = failures.store_error(error, FILE)
    assert str(FILE) in found.message
    assert message in found.message
    assert hint in found.hint
    assert isinstance(found, StoreCorrupt) is failures.is_corruption(error)


@pytest.mark.parametrize(
    ("code", "name", "is_unwritable"),
    [
        (sqlite3.SQLITE_FULL, "SQLITE_FULL", True),
        (sqlite3.SQLITE_READONLY, "SQLITE_READONLY", True),
        (sqlite3.SQLITE_IOERR | (3 << 8), "SQLITE_IOERR_WRITE", True),
        (sqlite3.SQLITE_IOERR | (19 << 8), "SQLITE_IOERR_SHMSIZE", True),
        (sqlite3.SQLITE_IOERR | (1 << 8), "SQLITE_IOERR_READ", False),
        (sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT", False),
        (sqlite3.SQLITE_BUSY, "SQLITE_BUSY", False),
    ],
)
def test_what_keeps_from_writing_is_told_apart_from_what_keeps_from_reading(
    code: int, name: str, is_unwritable: bool
) -> None:
    error = sqlite3.OperationalError("strange")
    error.sqlite_errorcode, error.sqlite_errorname = code, name
    assert isinstance(failures.store_error(error, FILE), StoreUnwritable) is is_unwritable


@pytest.mark.parametrize(
    ("number", "message", "hint"),
    [
        (errno.ENOLCK, "no working locks", "disk of this machine"),
        (errno.EOPNOTSUPP, "no working locks", "disk of this machine"),
        (errno.ENOSPC, "disk is full", "free some space"),
        (errno.EDQUOT, "disk is full", "free some space"),
        (errno.EROFS, "Read-only file system", "SBX_HOME"),
        (errno.EACCES, "Permission denied", "SBX_HOME"),
    ],
)
def test_every_error_of_the_folder_names_it_and_a_remedy(number: int, message: str, hint: str) -> None:
    found = failures.folder_error(OSError(number, os.strerror(number)), FILE.parent)
    assert str(FILE.parent) in found.message
    assert message in found.message
    assert hint in found.hint


def test_a_file_system_without_shared_memory_is_told() -> None:
    assert "disk of this machine" in failures.no_wal_error(FILE).hint


def test_an_open_store_goes_on_in_the_file_another_process_started_anew(home: Home, store: Store) -> None:
    registry = Registry(store)
    registry.adopt("local", "calm-otter", record("microvm-1"), actor="test")
    home.store_file.rename(home.store_file.with_name("store.db.corrupt-x"))
    other = Store.open(home)
    Registry(other).adopt("local", "brave-fox", record("microvm-2"), actor="test")

    registry.adopt("local", "late-lynx", record("microvm-3"), actor="test")

    assert {row.name for row in registry.list()} == {row.name for row in Registry(other).list()}
    assert {row.name for row in registry.list()} == {"brave-fox", "late-lynx"}
    other.close()


def test_an_open_store_survives_the_removal_of_its_home(home: Home, store: Store) -> None:
    shutil.rmtree(home.state_dir)
    Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")
    again = Store.open(home)
    assert [row.name for row in Registry(again).list()] == ["calm-otter"]
    again.close()


def test_an_open_store_whose_home_cannot_be_made_anew_says_so_and_works_again_once_it_can(
    home: Home, store: Store
) -> None:
    shutil.rmtree(home.state_dir)
    home.state_dir.write_text("in the way")
    for _ in range(2):
        with pytest.raises(StoreError):
            Registry(store).list()
        with pytest.raises(StoreError), store.transaction():
            pass
    home.state_dir.unlink()
    Registry(store).adopt("local", "calm-otter", record("microvm-1"), actor="test")
    again = Store.open(home)
    assert [row.name for row in Registry(again).list()] == ["calm-otter"]
    again.close()


async def test_polling_notices_a_file_started_anew(home: Home, store: Store) -> None:
    async with asyncio.timeout(15), Listener(home, poll_s=0.01) as listener:
        for bell in home.bells_dir.iterdir():
            bell.unlink()
        home.store_file.rename(home.store_file.with_name("store.db.corrupt-x"))
        other = await asyncio.to_thread(Store.open, home)
        assert await listener.wait()
        other.close()


def test_a_folder_in_the_stores_place_is_refused_and_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path / "state", tmp_path, tmp_path)
    home.store_file.mkdir(parents=True)
    with pytest.raises(StoreError, match="no file"):
        Store.open(home)
    assert home.store_file.is_dir()
