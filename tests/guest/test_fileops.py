"""`POST /v2/files/op` on a real guest: every operation, every refusal, trees of any shape."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.guest_process import GuestProcess


class Ops:
    """Sends operations and gives back the status and the decoded answer."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def __call__(self, op: str, **fields: object) -> dict[str, Any]:
        answer = await self.http.post("/v2/files/op", content=json.dumps({"op": op, **fields}))
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value

    async def refused(self, op: str, **fields: object) -> str:
        answer = await self.http.post("/v2/files/op", content=json.dumps({"op": op, **fields}))
        assert answer.status_code >= 400, answer.text
        return str(answer.json()["error"]["code"])

    async def lines(self, **fields: object) -> list[dict[str, Any]]:
        answer = await self.http.post("/v2/files/op", content=json.dumps({"op": "list", **fields}))
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
async def ops(guest: GuestProcess) -> AsyncIterator[Ops]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=60) as http:
        yield Ops(http)


async def test_stat_tells_of_a_link_itself_and_on_demand_of_what_it_names(guest: GuestProcess, ops: Ops) -> None:
    (guest.workdir / "file").write_bytes(b"12345")
    (guest.workdir / "file").chmod(0o640)
    (guest.workdir / "link").symlink_to("file")
    link, followed = await ops("stat", path="link"), await ops("stat", path="link", follow=True)
    assert (link["kind"], link["target"]) == ("link", "file")
    assert (followed["kind"], followed["size_bytes"], followed["mode"]) == ("file", 5, 0o640)
    assert await ops.refused("stat", path="nothing") == "file_not_found"


async def test_exists_is_an_answer_and_never_an_error(guest: GuestProcess, ops: Ops) -> None:
    (guest.workdir / "dangling").symlink_to("nowhere")
    (guest.workdir / "file").write_bytes(b"")
    assert await ops("exists", path="dangling") == {"exists": True, "kind": "link"}
    for path in ("nothing", "file/below", "dangling/below"):
        assert await ops("exists", path=path) == {"exists": False, "kind": ""}


async def test_mkdir_makes_one_folder_or_with_parents_all(guest: GuestProcess, ops: Ops) -> None:
    assert await ops.refused("mkdir", path="a/b") == "file_not_found"
    await ops("mkdir", path="a/b", parents=True)
    await ops("mkdir", path="a/b", parents=True)
    assert await ops.refused("mkdir", path="a/b") == "file_exists"
    await ops("mkdir", path="private", mode="700")
    assert stat.S_IMODE((guest.workdir / "private").stat().st_mode) == 0o700
    (guest.workdir / "file").write_bytes(b"")
    assert await ops.refused("mkdir", path="file", parents=True) == "file_exists"


async def test_mv_replaces_only_where_it_may(guest: GuestProcess, ops: Ops) -> None:
    (guest.workdir / "one").write_bytes(b"1")
    (guest.workdir / "two").write_bytes(b"2")
    assert await ops.refused("mv", path="one", to="two", no_overwrite=True) == "file_exists"
    await ops("mv", path="one", to="two")
    assert ((guest.workdir / "two").read_bytes(), (guest.workdir / "one").exists()) == (b"1", False)
    await ops("mv", path="two", to="new/place/three", parents=True, no_overwrite=True)
    assert (guest.workdir / "new/place/three").read_bytes() == b"1"
    assert await ops.refused("mv", path="nothing", to="x") == "file_not_found"
    assert await ops.refused("mv", path=".", to="../elsewhere") == "refused"
    await ops("mkdir", path="outer")
    assert await ops.refused("mv", path="outer", to="outer/inner") == "refused"
    assert await ops.refused("cp", path="new/place/three", to="new/place/three") == "refused"


async def test_cp_follows_a_single_link_and_keeps_mode_and_time(guest: GuestProcess, ops: Ops) -> None:
    source = guest.workdir / "source"
    source.write_bytes(b"x" * 3_000_000)
    source.chmod(0o751)
    os.utime(source, ns=(1, 1_600_000_000_000_000_001))
    (guest.workdir / "link").symlink_to("source")
    await ops("cp", path="link", to="copy")
    copy = guest.workdir / "copy"
    assert not copy.is_symlink() and copy.read_bytes() == source.read_bytes()
    assert (stat.S_IMODE(copy.stat().st_mode), copy.stat().st_mtime_ns) == (0o751, 1_600_000_000_000_000_001)
    assert await ops.refused("cp", path="source", to="copy", no_overwrite=True) == "file_exists"


async def test_cp_of_a_tree_copies_links_as_links_and_says_what_it_left_out(guest: GuestProcess, ops: Ops) -> None:
    tree = guest.workdir / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/file").write_bytes(b"content")
    (tree / "link").symlink_to("/etc")
    os.mkfifo(tree / "fifo")
    (tree / "locked").mkdir(mode=0o500)
    assert await ops.refused("cp", path="tree", to="copy") == "is_a_directory"
    assert await ops("cp", path="tree", to="copy", recursive=True) == {"left_out": ["fifo"], "left_out_count": 1}
    copy = guest.workdir / "copy"
    assert (copy / "sub/file").read_bytes() == b"content"
    assert os.readlink(copy / "link") == "/etc"
    assert stat.S_IMODE((copy / "locked").stat().st_mode) == 0o500
    assert await ops.refused("cp", path="tree", to="tree/sub/inside", recursive=True) == "refused"


async def test_rm_removes_a_link_and_not_what_it_names(guest: GuestProcess, ops: Ops) -> None:
    (guest.workdir / "keep").mkdir()
    (guest.workdir / "keep/file").write_bytes(b"")
    (guest.workdir / "link").symlink_to("keep")
    (guest.workdir / "tree").mkdir()
    (guest.workdir / "tree/link").symlink_to("../keep")
    await ops("rm", path="link", recursive=True)
    await ops("rm", path="tree", recursive=True)
    assert (guest.workdir / "keep/file").exists()
    assert sorted(path.name for path in guest.workdir.iterdir()) == ["keep"]


async def test_rm_wants_to_be_told_twice(guest: GuestProcess, ops: Ops) -> None:
    (guest.workdir / "tree/sub").mkdir(parents=True)
    assert await ops.refused("rm", path="tree") == "is_a_directory"
    assert await ops.refused("rm", path="nothing") == "file_not_found"
    await ops("rm", path="nothing", force=True)
    await ops("rm", path="tree", recursive=True)


async def test_rm_refuses_the_root_and_the_workdir_however_they_are_spelled(guest: GuestProcess, ops: Ops) -> None:
    (guest.workdir / "sub").mkdir()
    for path in ("/", "//", "/..", ".", "sub/..", str(guest.workdir), str(guest.workdir.parent), "../work/"):
        assert await ops.refused("rm", path=path, recursive=True) == "refused", path
    assert await ops.refused("rm", path="/", recursive=True, even_workdir=True) == "refused"
    await ops("rm", path=".", recursive=True, even_workdir=True)
    assert not guest.workdir.exists()


async def test_a_very_deep_tree_is_removed(guest: GuestProcess, ops: Ops) -> None:
    def dig(depth: int) -> None:
        fd = os.open(guest.workdir, os.O_RDONLY)
        for _ in range(depth):
            os.mkdir("d" * 60, dir_fd=fd)
            inner = os.open("d" * 60, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(os.open("leaf", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        os.close(fd)

    dig(1_500)
    await ops("rm", path="d" * 60, recursive=True)
    assert list(guest.workdir.iterdir()) == []


@pytest.mark.long
async def test_a_huge_folder_is_listed_whole_with_an_end_that_says_so(guest: GuestProcess, ops: Ops) -> None:
    for number in range(5_000):
        (guest.workdir / f"{number:05d}").touch()
    lines = await ops.lines(path=".")
    assert lines[-1] == {"end": True, "count": 5_000, "truncated": False}
    assert sorted(line["path"] for line in lines[:-1]) == [f"{number:05d}" for number in range(5_000)]
    for limit in (0, 1, 500, 501, 4_999):
        lines = await ops.lines(path=".", limit=limit)
        assert (len(lines) - 1, lines[-1]) == (limit, {"end": True, "count": limit, "truncated": True})


async def test_a_listing_goes_down_on_demand_and_never_through_links(guest: GuestProcess, ops: Ops) -> None:
    (guest.workdir / "a/b").mkdir(parents=True)
    (guest.workdir / "a/b/file").write_bytes(b"1")
    (guest.workdir / "a/up").symlink_to("..")
    flat = {line["path"]: line["kind"] for line in (await ops.lines(path="a"))[:-1]}
    deep = {line["path"]: line["kind"] for line in (await ops.lines(path=".", recursive=True))[:-1]}
    assert flat == {"b": "dir", "up": "link"}
    assert deep == {"a": "dir", "a/b": "dir", "a/up": "link", "a/b/file": "file"}
    assert [line.get("path") for line in await ops.lines(path="a/b/file")] == ["file", None]
    assert await ops.refused("list", path="nothing") == "file_not_found"


async def test_names_that_are_not_utf8_round_trip(guest: GuestProcess, ops: Ops) -> None:
    name = os.fsdecode(b"\xff\n\xe9")
    (guest.workdir / name).write_bytes(b"x")
    assert (await ops.lines(path="."))[0]["path"] == name
    await ops("mv", path=name, to=name + name)
    assert (await ops("stat", path=name + name))["size_bytes"] == 1
    await ops("rm", path=name + name)
    assert list(guest.workdir.iterdir()) == []


BAD_REQUESTS = [
    {},
    {"op": "format"},
    {"op": "stat"},
    {"op": "stat", "path": ""},
    {"op": "stat", "path": "a\0b"},
    {"op": "stat", "path": "\ud800"},
    {"op": "stat", "path": 7},
    {"op": "stat", "path": "a", "recursive": True},
    {"op": "rm", "path": "a", "recursive": "yes"},
    {"op": "mv", "path": "a"},
    {"op": "list", "path": ".", "limit": -1},
    {"op": "list", "path": ".", "limit": True},
    {"op": "mkdir", "path": "a", "mode": 448},
    {"op": "mkdir", "path": "a", "mode": "rwx"},
]


async def test_a_request_that_makes_no_sense_is_a_400_and_does_nothing(guest: GuestProcess, ops: Ops) -> None:
    for body in BAD_REQUESTS:
        answer = await ops.http.post("/v2/files/op", content=json.dumps(body))
        assert answer.status_code == 400, body
    assert (await ops.http.post("/v2/files/op", content=b"\xff")).status_code == 400
    assert list(guest.workdir.iterdir()) == []


async def test_what_jobs_of_another_user_get_is_theirs(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    from tests.support.guest_process import running_guest

    env = {"SBX_JOB_UID": "1000", "SBX_JOB_GID": "1001"}
    async with running_guest(tmp_path, env=env) as guest, httpx.AsyncClient(base_url=guest.url, timeout=60) as http:
        ops = Ops(http)
        await http.put("/v2/files?path=a/b/file&parents=1", content=b"x")
        await ops("mkdir", path="c/d", parents=True)
        await ops("cp", path="a", to="e", recursive=True)
        owners = {(path.stat().st_uid, path.stat().st_gid) for path in guest.workdir.rglob("*")}
    assert owners == {(1000, 1001)}
