"""A disk that is full in the middle of an upload: a clear error, the old content, and nothing half-written."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from sbxtui.core.errors import QuotaExceeded
from sbxtui.guest.client import GuestClient
from tests.support.guest_process import running_guest

MIB = 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder whose `work` is a file system of 4 MiB."""
    work = tmp_path / "work"
    work.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(work)], capture_output=True, check=False, timeout=10
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root with its capabilities")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(work)], check=True, timeout=10)


async def blocks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield os.urandom(MIB)


def tar_of(size_bytes: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, size in (("small", 10), ("large", size_bytes)):
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size)))
    return buffer.getvalue()


async def check_full(http: httpx.AsyncClient, workdir: Path) -> None:
    assert (await http.put("/v2/files?path=f", content=b"old")).status_code == 201
    upload = await http.put("/v2/files?path=f", content=blocks(8))
    assert (upload.status_code, upload.json()["error"]["code"]) == (507, "disk_full")
    copy = await http.put("/v2/files/tar?path=tree", content=tar_of(8 * MIB))
    assert (copy.status_code, copy.json()["error"]["code"]) == (507, "disk_full")
    assert (workdir / "f").read_bytes() == b"old"
    names = sorted(str(path.relative_to(workdir)) for path in workdir.rglob("*"))
    assert names == ["f", "tree", "tree/small"]
    assert (await http.put("/v2/files?path=f", content=b"new")).status_code == 201
    assert (workdir / "f").read_bytes() == b"new"


async def test_a_full_disk_leaves_the_old_content(small_disk: Path) -> None:
    async with (
        running_guest(small_disk) as guest,
        httpx.AsyncClient(base_url=guest.url, timeout=30) as http,
    ):
        await check_full(http, guest.workdir)
        told = await http.put("/v2/files?path=g", content=bytes(8 * MIB))
        assert told.status_code == 507 and not (guest.workdir / "g").exists()


async def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("needs prlimit")
    async with (
        running_guest(tmp_path, prefix=("prlimit", f"--fsize={4 * MIB}")) as guest,
        httpx.AsyncClient(base_url=guest.url, timeout=30) as http,
    ):
        await check_full(http, guest.workdir)


async def test_a_large_content_a_sync_has_no_room_for_is_told_as_a_full_disk(small_disk: Path) -> None:
    async with running_guest(small_disk) as guest, GuestClient(guest.url, None) as client:
        with pytest.raises(QuotaExceeded):
            await client.tree().upload_blob(bytes(32), blocks(8), offset=0, size_bytes=8 * MIB)
