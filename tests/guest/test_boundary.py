"""A guest that shares the host's files keeps to its own folder, whatever it is asked."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.guest_process import GuestProcess, running_guest


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[GuestProcess]:
    """A guest told that everything above `sandbox` is the host's; `sandbox/work` holds links that lead there."""
    outside, sandbox = tmp_path / "outside", tmp_path / "sandbox"
    outside.mkdir()
    (outside / "file").write_text("of the host")
    async with running_guest(sandbox, env={"SBX_ROOT": str(sandbox)}) as guest:
        (guest.workdir / "to-folder").symlink_to(outside)
        (guest.workdir / "to-file").symlink_to(outside / "file")
        yield guest


@pytest.fixture
async def http(kept: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=kept.url, timeout=60) as client:
        yield client


def _outside(kept: GuestProcess) -> Path:
    return kept.workdir.parents[1] / "outside"


def _ways_out(kept: GuestProcess) -> tuple[str, ...]:
    outside = _outside(kept)
    return (
        f"{outside}/file",
        "../../outside/file",
        "to-file",
        "to-folder/file",
        "to-folder/../outside/file",
        "to-folder/",
    )


def _assert_untouched(kept: GuestProcess) -> None:
    assert [path.name for path in _outside(kept).iterdir()] == ["file"]
    assert (_outside(kept) / "file").read_text() == "of the host"


async def test_a_working_folder_of_the_host_is_refused_in_words(kept: GuestProcess, http: httpx.AsyncClient) -> None:
    for workdir in (str(_outside(kept)), "/", f"{kept.workdir}/to-folder", f"{kept.workdir.parent}-more"):
        answer = await http.put("/v2/launch", json={"workdir": workdir})
        assert answer.status_code == 400
        assert "shares the host's files: its working folder must lie below" in answer.json()["error"]["message"]
    own = str(kept.workdir / "own")
    assert (await http.put("/v2/launch", json={"workdir": own})).json() == {"workdir": own}


async def test_jobs_start_in_the_sandboxs_own_folder_or_below_it_or_not_at_all(
    kept: GuestProcess, http: httpx.AsyncClient
) -> None:
    (kept.workdir / "sub").mkdir()
    for number, (cwd, there) in enumerate({"": kept.workdir, "sub": kept.workdir / "sub"}.items()):
        body = {"id": f"j{number}", "argv": ["pwd"], "cwd": cwd}
        job = (await http.post("/v2/jobs?wait_s=20", json=body)).json()
        assert base64.b64decode(job["output"]["stdout"]).decode().strip() == str(there)
    for cwd in ("/", str(_outside(kept)), "../..", "to-folder"):
        answer = await http.post("/v2/jobs", json={"id": "x", "argv": ["touch", "made"], "cwd": cwd})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_cwd"), cwd
    answer = await http.post("/v1/exec", json={"command": "touch", "args": ["made"], "cwd": str(_outside(kept))})
    assert answer.status_code == 400
    _assert_untouched(kept)


async def test_no_file_of_the_host_is_read_or_written(kept: GuestProcess, http: httpx.AsyncClient) -> None:
    empty_tar = io.BytesIO()
    tarfile.open(fileobj=empty_tar, mode="w").close()
    for path in _ways_out(kept):
        answers = [
            await http.get("/v2/files", params={"path": path}),
            await http.put("/v2/files", params={"path": path, "parents": "1"}, content=b"x"),
            await http.get("/v2/files/tar", params={"path": path}),
            await http.put("/v2/files/tar", params={"path": path, "parents": "1"}, content=empty_tar.getvalue()),
            await http.post("/v1/fs/read", json={"path": path}),
            await http.post("/v1/fs/write", json={"path": path, "content": "x"}),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "access_denied"), (path, answer.text)
            assert "shares the host's files" in answer.json()["error"]["message"]
    _assert_untouched(kept)


async def test_no_operation_reaches_out(kept: GuestProcess, http: httpx.AsyncClient) -> None:
    (kept.workdir / "own").write_text("mine")
    outside = str(_outside(kept) / "file")
    for fields in (
        {"op": "mkdir", "path": "to-folder/new"},
        {"op": "rm", "path": outside},
        {"op": "rm", "path": "to-folder/file"},
        {"op": "rm", "path": "to-folder/", "recursive": True, "even_workdir": True},
        {"op": "rm", "path": "../../sandbox", "recursive": True, "even_workdir": True},
        {"op": "mv", "path": outside, "to": "taken"},
        {"op": "mv", "path": "own", "to": "to-folder/own"},
        {"op": "cp", "path": outside, "to": "taken"},
        {"op": "cp", "path": "own", "to": "to-file"},
        {"op": "stat", "path": "to-file", "follow": True},
        {"op": "exists", "path": outside},
        {"op": "list", "path": "to-folder"},
        {"op": "check", "path": outside},
    ):
        answer = await http.post("/v2/files/op", json=fields)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "access_denied"), (fields, answer.text)
    _assert_untouched(kept)


async def test_a_tree_is_not_merged_through_links_that_lead_out(kept: GuestProcess, http: httpx.AsyncClient) -> None:
    for name in ("to-folder", "to-file"):
        tree = kept.workdir / f"tree-of-{name}"
        (tree / "to-folder").mkdir(parents=True) if name == "to-folder" else tree.mkdir()
        (tree / name / "file" if name == "to-folder" else tree / name).write_text("mine")
        answer = await http.post("/v2/files/op", json={"op": "cp", "path": tree.name, "to": ".", "recursive": True})
        assert answer.status_code in (403, 409)
        target = kept.workdir / f"merged-{name}"
        target.mkdir()
        (target / name).symlink_to((kept.workdir / name).readlink())
        fields = {"op": "cp", "path": tree.name, "to": target.name, "recursive": True}
        assert (await http.post("/v2/files/op", json=fields)).status_code == 403
    _assert_untouched(kept)


async def test_a_link_that_leads_out_can_be_seen_and_removed(kept: GuestProcess, http: httpx.AsyncClient) -> None:
    assert (await http.post("/v2/files/op", json={"op": "stat", "path": "to-file"})).json()["kind"] == "link"
    assert (await http.post("/v2/files/op", json={"op": "mv", "path": "to-file", "to": "moved"})).status_code == 200
    assert (await http.post("/v2/files/op", json={"op": "rm", "path": "moved"})).status_code == 200
    assert not (kept.workdir / "moved").is_symlink()
    _assert_untouched(kept)
