"""`/v2/jobs` as it is on the wire, against a real guest."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sbxguest import wire
from sbxguest.jobs import LIVE_JOBS_MAX, ring_of
from sbxguest.jobstate import Flag, JobState
from sbxguest.wire import FrameType
from tests.support.guest_process import GuestProcess, children_of, running_guest
from tests.support.job_calls import error_of, job_frames, run_job, start_job

LIMIT_S = 30


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=20) as http, asyncio.timeout(LIMIT_S):
        yield http


async def test_a_request_that_waits_returns_output_and_exit(http: httpx.AsyncClient) -> None:
    job = await run_job(http, "a", "echo out; echo err >&2; exit 3", actor="me", label="x")
    assert job["state"] == "exited"
    exit_ = job["exit"]
    assert (exit_["code"], exit_["signal"], exit_["timed_out"], exit_["oom"]) == (3, None, False, False)
    assert exit_["totals"] == {"out": 4, "err": 4, "pty": 0, "all": 8}
    assert base64.b64decode(job["output"]["stdout"]) == b"out\n"
    assert base64.b64decode(job["output"]["stderr"]) == b"err\n"
    assert (job["actor"], job["label"]) == ("me", "x")


async def test_the_same_request_twice_runs_once_and_another_one_with_its_id_is_a_conflict(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    body = {"id": "once", "argv": ["sh", "-c", "echo ran >> runs; sleep 0.1"]}
    replies = await asyncio.gather(*(http.post("/v2/jobs", params={"wait_s": 5}, json=body) for _ in range(5)))
    assert sorted(reply.status_code for reply in replies) == [200, 200, 200, 200, 201]
    assert len({reply.json()["pid"] for reply in replies}) == 1
    assert (guest.workdir / "runs").read_text() == "ran\n"
    other = await http.post("/v2/jobs", json={**body, "argv": ["true"]})
    assert error_of(other) == (409, "conflict")


async def test_the_same_request_after_a_restart_of_the_server_still_runs_once(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    body = {"id": "once", "argv": ["sh", "-c", "echo ran >> runs"]}
    first = await http.post("/v2/jobs", params={"wait_s": 5}, json=body)
    await guest.kill_server()
    again = await http.post("/v2/jobs", params={"wait_s": 5}, json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["exit"] == first.json()["exit"]
    assert (guest.workdir / "runs").read_text() == "ran\n"
    assert b"".join(frame.payload for frame in (await job_frames(http, "once"))[:-1]) == b""


async def test_another_boot_is_410_and_nothing_runs(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    stale = {wire.BOOT_HEADER: "0" * 32}
    reply = await http.post("/v2/jobs", json={"id": "a", "argv": ["touch", "ran"]}, headers=stale)
    assert error_of(reply) == (410, "boot_changed")
    for method, path in (("GET", "/v2/jobs"), ("GET", "/v2/jobs/a/log"), ("DELETE", "/v2/jobs/a")):
        assert (await http.request(method, path, headers=stale)).status_code == 410
    assert not (guest.workdir / "ran").exists()


BAD_REQUESTS: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({}, 400, "bad_id"),
    ({"id": "../x"}, 400, "bad_id"),
    ({"id": "a" * 65}, 400, "bad_id"),
    ({"id": "a"}, 400, "bad_argv"),
    ({"id": "a", "argv": []}, 400, "bad_argv"),
    ({"id": "a", "argv": "true"}, 400, "bad_argv"),
    ({"id": "a", "argv": ["a", 1]}, 400, "bad_argv"),
    ({"id": "a", "argv": ["true"], "shell": "true"}, 400, "bad_argv"),
    ({"id": "a", "argv": ["a\0"]}, 400, "bad_argv"),
    ({"id": "a", "argv": ["\ud800"]}, 400, "bad_argv"),
    ({"id": "a", "argv": ["true"], "env": {"A\0": "x"}}, 400, "bad_env"),
    ({"id": "a", "argv": ["true"], "env": {"A": 1}}, 400, "bad_env"),
    ({"id": "a", "argv": ["true"], "env": ["A=1"]}, 400, "bad_env"),
    ({"id": "a", "argv": ["true"], "cwd": "x\0"}, 400, "bad_cwd"),
    ({"id": "a", "argv": ["true"], "cwd": "nowhere"}, 400, "cwd_not_found"),
    ({"id": "a", "argv": ["true"], "cwd": "/etc/passwd"}, 400, "cwd_not_found"),
    ({"id": "a", "argv": ["true"], "stdin": "file"}, 400, "bad_stdin"),
    ({"id": "a", "argv": ["true"], "log": "none"}, 400, "bad_log"),
    ({"id": "a", "argv": ["true"], "timeout_s": -1}, 400, "bad_timeout_s"),
    ({"id": "a", "argv": ["true"], "timeout_s": True}, 400, "bad_timeout_s"),
    ({"id": "a", "argv": ["true"], "kill_grace_s": "3"}, 400, "bad_kill_grace_s"),
    ({"id": "a", "argv": ["true"], "ring_bytes": 1}, 400, "bad_ring_bytes"),
    ({"id": "a", "argv": ["true"], "user": "no-such-user"}, 400, "no_such_user"),
    ({"id": "a", "argv": ["true"], "user": "4294967295"}, 400, "no_such_user"),
    ({"id": "a", "argv": ["true"], "label": "x" * 257}, 400, "bad_label"),
    ({"id": "a", "argv": ["true"], "tty": True}, 400, "bad_tty"),
    ({"id": "a", "argv": ["true"], "tty": {"cols": 80}}, 400, "bad_tty"),
    ({"id": "a", "argv": ["true"], "tty": {"cols": 0, "rows": 24}}, 400, "bad_tty"),
    ({"id": "a", "argv": ["true"], "tty": {"cols": 80, "rows": 70_000}}, 400, "bad_tty"),
    ({"id": "a", "argv": ["true"], "tty": {"cols": 80, "rows": 24, "term": "a\nb"}}, 400, "bad_tty"),
    ({"id": "a", "argv": ["true"], "tty": {"cols": 80, "rows": 24}, "cwd": "nowhere"}, 400, "cwd_not_found"),
    ({"id": "a", "argv": ["true", "x" * 200_000]}, 413, "argv_too_long"),
)


async def test_every_wrong_request_has_its_own_error_and_leaves_no_job(http: httpx.AsyncClient) -> None:
    for body, status, code in BAD_REQUESTS:
        assert error_of(await http.post("/v2/jobs", content=json.dumps(body))) == (status, code), body
    for content in (b"", b"{", b"[]", b"[" * 100_000):
        assert (await http.post("/v2/jobs", content=content)).status_code == 400
    assert error_of(await http.post("/v2/jobs", content=bytes(5_000_000))) == (413, "too_large")
    assert (await http.get("/v2/jobs")).json() == {"jobs": []}


async def test_a_request_that_was_refused_may_be_corrected_under_the_same_id(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    body = {"id": "a", "argv": ["true"], "cwd": "later"}
    assert (await http.post("/v2/jobs", json=body)).status_code == 400
    (guest.workdir / "later").mkdir()
    assert (await http.post("/v2/jobs", json=body)).status_code == 201


async def test_a_ring_log_keeps_head_and_tail_and_names_the_gap(http: httpx.AsyncClient) -> None:
    job = await run_job(http, "big", "seq 1 200000", ring_bytes=64 * 1024)
    expected = b"".join(b"%d\n" % n for n in range(1, 200_001))
    *data, last = await job_frames(http, "big")
    gaps = [frame for frame in data if frame.type == FrameType.GAP]
    assert "output" in job and job["output"] is None
    assert last.type == FrameType.EXIT
    assert [(gap.cursor, gap.end_cursor) for gap in gaps] == [(64 * 1024, len(expected) - 64 * 1024)]
    kept = b"".join(frame.payload for frame in data if frame.type == FrameType.DATA)
    assert kept == expected[: 64 * 1024] + expected[-64 * 1024 :]
    assert [frame.type for frame in await job_frames(http, "big", cursor=len(expected))] == [FrameType.EXIT]
    assert error_of(await http.get("/v2/jobs/big/log", params={"cursor": len(expected) + 1})) == (416, "bad_cursor")


async def test_watchers_each_have_their_cursor_and_all_see_the_exit_last(http: httpx.AsyncClient) -> None:
    await start_job(http, "w", "for i in 1 2 3 4 5; do echo $i; sleep 0.02; done")
    while not await job_frames(http, "w"):
        pass
    logs = await asyncio.gather(*(job_frames(http, "w", follow=1, cursor=cursor) for cursor in (0, 0, 2)))
    for log, expected in zip(logs, (b"1\n2\n3\n4\n5\n", b"1\n2\n3\n4\n5\n", b"2\n3\n4\n5\n"), strict=True):
        assert b"".join(frame.payload for frame in log[:-1]) == expected
        assert [frame.type for frame in log].index(FrameType.EXIT) == len(log) - 1


async def test_a_look_at_a_running_job_ends_without_exit(http: httpx.AsyncClient) -> None:
    await start_job(http, "r", "echo up; exec sleep 1000")
    while not (frames := await job_frames(http, "r")):
        pass
    assert [frame.payload for frame in frames] == [b"up\n"]


async def test_input_is_taken_once_by_offset(http: httpx.AsyncClient) -> None:
    await start_job(http, "c", "cat", stdin="pipe")

    async def send(offset: int, data: bytes, **more: int) -> httpx.Response:
        return await http.post("/v2/jobs/c/stdin", params={"offset": offset, **more}, content=data)

    assert (await send(0, b"hello ")).json() == {"accepted": 6}
    assert (await send(0, b"hello ")).json() == {"accepted": 6}
    assert (await send(3, b"lo world")).json() == {"accepted": 11}
    gap = await send(12, b"x")
    assert (error_of(gap), gap.json()["error"]["details"]["accepted"]) == ((409, "bad_offset"), 11)
    assert (await send(11, b"!", eof=1)).json() == {"accepted": 12}
    assert (await http.post("/v2/jobs/c/eof")).status_code == 200
    assert b"".join(frame.payload for frame in (await job_frames(http, "c", follow=1))[:-1]) == b"hello world!"
    assert error_of(await send(12, b"late")) == (409, "stdin_closed")
    await start_job(http, "n", "true")
    assert error_of(await http.post("/v2/jobs/n/stdin", content=b"x")) == (409, "no_stdin")


async def test_input_survives_a_restart_of_the_server(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await start_job(http, "c", "cat", stdin="pipe")
    await http.post("/v2/jobs/c/stdin", params={"offset": 0}, content=b"one ")
    await guest.kill_server()
    await http.post("/v2/jobs/c/stdin", params={"offset": 4, "eof": 1}, content=b"two")
    assert b"".join(frame.payload for frame in (await job_frames(http, "c", follow=1))[:-1]) == b"one two"


async def test_a_deleted_job_is_gone_with_its_processes(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    job = await start_job(http, "d", "trap '' TERM; setsid sleep 1000 & sleep 1000")
    assert (await http.delete("/v2/jobs/d")).status_code == 200
    assert not os.path.exists(f"/proc/{job['pid']}")
    assert error_of(await http.get("/v2/jobs/d")) == (404, "not_found")
    await guest.kill_server()
    assert (await http.get("/v2/jobs")).json() == {"jobs": []}


@pytest.mark.skipif(os.geteuid() != 0, reason="the guest's descriptors are closed to everyone but root")
async def test_old_results_make_room_for_new_ones_and_no_descriptor_is_lost(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await run_job(http, "warm", "true")
    before = guest.descriptors()
    for n in range(12):
        await run_job(http, f"big{n}", "head -c 9000000 /dev/zero")
    listed = [job["id"] for job in (await http.get("/v2/jobs")).json()["jobs"]]
    assert listed[-1] == "big11" and "warm" not in listed and len(listed) <= 8
    for job_id in listed:
        await http.delete(f"/v2/jobs/{job_id}")
    await guest.has_no_more_descriptors_than(before)


@pytest.mark.parametrize("asked_bytes", [wire.RING_BYTES_MIN, wire.RING_BYTES, wire.RINGS_TOTAL_BYTES])
def test_the_rings_of_as_many_jobs_as_may_run_fit_into_what_all_may_take(asked_bytes: int) -> None:
    rings: list[int] = []
    for count in range(LIVE_JOBS_MAX):
        rings.append(ring_of(asked_bytes, live_bytes=sum(rings), live_count=count))
    assert sum(rings) <= wire.RINGS_TOTAL_BYTES
    assert min(rings) >= wire.RING_BYTES_MIN
    assert rings[:4] == [asked_bytes] * 4 or asked_bytes > wire.RING_BYTES


async def test_a_thousand_orphans_leave_no_zombie(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await run_job(http, "o", "i=0; while [ $i -lt 1000 ]; do (/bin/true &); i=$((i + 1)); done")
    shims = [pid for pid in children_of(guest.init_pid) if pid != guest.server_pid]
    async with asyncio.timeout(5):
        while any(children_of(pid) for pid in (*shims, *children_of(guest.init_pid)) if pid != guest.server_pid):
            await asyncio.sleep(0.02)


async def test_health_answers_at_once_while_a_job_floods_its_log(http: httpx.AsyncClient) -> None:
    await start_job(http, "y", "yes")
    async with asyncio.timeout(5):
        for _ in range(20):
            assert (await http.get("/healthz")).json() == {"status": "ok"}
    await http.delete("/v2/jobs/y")


async def test_before_run_only_health_is_served_when_hooks_are_enabled(tmp_path: Path) -> None:
    async with running_guest(tmp_path, has_hooks=True) as guest, httpx.AsyncClient(base_url=guest.url) as http:
        assert (await http.get("/healthz")).status_code == 200
        for path in ("/v2/hello", "/v2/jobs"):
            assert error_of(await http.get(path)) == (503, "not_ready")
        assert error_of(await http.post("/v2/jobs", json={"id": "a", "argv": ["true"]})) == (503, "not_ready")


async def test_launch_settings_outlive_the_server_and_wrong_ones_are_refused(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    bad: tuple[dict[str, Any], ...] = ({"workdir": "relative"}, {"workdir": 5}, {"env": {"": "x"}}, {"env": []})
    for body in bad:
        assert (await http.put("/v2/launch", json=body)).status_code == 400
    await http.put("/v2/launch", json={"env": {"K": "v"}, "workdir": "/"})
    await guest.kill_server()
    assert (await http.get("/v2/hello")).json()["workdir"] == "/"
    job = await run_job(http, "e", "pwd; echo $K")
    assert base64.b64decode(job["output"]["stdout"]) == b"/\nv\n"


async def test_the_hello_of_this_generation_has_these_fields(http: httpx.AsyncClient) -> None:
    hello = (await http.get("/v2/hello")).json()
    assert list(hello) == [
        *("generation", "features", "guest_version", "boot_id", "sandbox", "workdir", "limits", "isolation", "now"),
    ]
    assert hello["sandbox"] == {"id": "", "name": "", "owner": "", "purpose": ""}


async def test_a_held_job_with_a_small_ring_is_read_whole_in_windows_of_half_of_it(http: httpx.AsyncClient) -> None:
    await start_job(http, "h", "seq 1 100000", log="hold", ring_bytes=64 * 1024)
    data = bytearray()
    while True:
        frames = await job_frames(http, "h", follow=1, hold=1, cursor=len(data), max_bytes=1 << 30)
        data += b"".join(frame.payload for frame in frames if frame.type == FrameType.DATA)
        if frames[-1].type == FrameType.EXIT:
            break
    assert bytes(data) == b"".join(b"%d\n" % n for n in range(1, 100_001))


async def test_input_and_its_end_that_wait_for_a_job_that_is_deleted_touch_no_other_file(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await start_job(http, "d", "exec sleep 1000", stdin="pipe")
    server_pid = guest.server_pid
    feeding = asyncio.create_task(http.post("/v2/jobs/d/stdin", params={"offset": 0}, content=bytes(4 << 20)))
    while not (await http.get("/v2/jobs/d")).json()["stdin_accepted"]:
        await asyncio.sleep(0)
    waiting = [
        asyncio.create_task(http.post("/v2/jobs/d/eof")),
        asyncio.create_task(http.post("/v2/jobs/d/stdin", params={"offset": 0, "eof": 1}, content=b"more")),
    ]
    # Answered behind both on the same server: they wait for their turn by then.
    for _ in range(3):
        await http.get("/healthz")
    assert (await http.delete("/v2/jobs/d")).status_code == 200
    assert error_of(await feeding) in ((404, "not_found"), (409, "stdin_closed"))
    # Its end comes before it is forgotten, and either may be what they find.
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} <= {200, 404, 409}
    assert (await run_job(http, "after", "cat", stdin="none"))["exit"]["code"] == 0
    assert guest.server_pid == server_pid


def test_the_state_of_a_forgotten_job_is_written_nowhere(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    try:
        state = JobState(fd)
        state.set(Flag.ENDING)
        before = (tmp_path / "log").read_bytes()
        state.close()
        state.set(Flag.STDIN_ENDED)
        assert (tmp_path / "log").read_bytes() == before
    finally:
        os.close(fd)


async def test_the_documents_of_this_generation_have_these_fields(http: httpx.AsyncClient) -> None:
    job = await run_job(http, "g", "exit 1")
    assert list(job) == [
        *("id", "argv", "shell", "shell_name", "cwd", "user", "stdin", "tty", "timeout_s", "kill_grace_s", "log"),
        *("on_disconnect", "ring_bytes", "actor", "label", "limits", "created_at", "state", "pid", "cursor"),
        *("stdin_accepted", "watchers", "exit", "output"),
    ]
    assert list(job["exit"]) == ["code", "signal", "timed_out", "oom", "lingering", "duration_s", "totals"]
    line = (await http.post("/v2/shells/s", params={"wait_s": 20}, json={"id": "l", "line": "true"})).json()
    assert list(line["exit"]["shell"]) == ["name", "cwd", "is_kept", "why"]
    assert list((await http.get("/v2/shells/s")).json()) == ["name", "cwd", "env", "keeps", "queue", "last"]


async def test_hello_lists_what_is_there_and_nothing_else(http: httpx.AsyncClient) -> None:
    paths = {
        "jobs": ("GET", "/v2/jobs"),
        "jobs.stdin": ("POST", "/v2/jobs/x/stdin"),
        "jobs.hold": ("GET", "/v2/jobs/x/log"),
        "jobs.tty": ("POST", "/v2/jobs/x/resize"),
        "jobs.attach": ("GET", "/v2/jobs/x/attach"),
        "jobs.limits": ("GET", "/v2/jobs/x"),
        "jobs.end": ("POST", "/v2/jobs/x/end"),
        "shells": ("GET", "/v2/shells"),
        "files": ("GET", "/v2/files"),
        "files.tar": ("GET", "/v2/files/tar"),
        "metrics": ("GET", "/v2/metrics"),
        "v1": ("POST", "/v1/exec"),
    }
    features = (await http.get("/v2/hello")).json()["features"]
    assert set(features) <= {*paths, "tunnel", "ports", "tree", "logs", "secrets", "sync"}
    for feature in paths.keys() & set(features):
        reply = await http.request(*paths[feature])
        assert "unsupported" not in reply.text, feature
    assert set(paths) <= set(features)
