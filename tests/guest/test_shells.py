"""`/v2/shells` of a real guest: lines that share a folder and variables."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sbxguest import wire
from sbxguest.wire import FrameDecoder, FrameType
from tests.support.attach_client import attached
from tests.support.guest_process import GuestProcess, running_guest

LIMIT_S = 60
_ids = (f"line{n}" for n in itertools.count())


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http, asyncio.timeout(LIMIT_S):
        yield http


async def _post(
    http: httpx.AsyncClient, line: str, *, name: str = "s", wait_s: int = 20, **more: Any
) -> httpx.Response:
    body = {"id": next(_ids), "line": line, **more}
    return await http.post(f"/v2/shells/{name}", params={"wait_s": wait_s}, json=body)


async def _run(http: httpx.AsyncClient, line: str, **more: Any) -> dict[str, Any]:
    reply = await _post(http, line, **more)
    assert reply.status_code == 201, reply.text
    document: dict[str, Any] = reply.json()
    assert document["state"] == "exited"
    return document


async def _say(http: httpx.AsyncClient, line: str, **more: Any) -> str:
    job = await _run(http, line, **more)
    return base64.b64decode(job["output"]["stdout"]).decode("utf-8", "surrogateescape")


async def _state(http: httpx.AsyncClient, name: str = "s") -> dict[str, Any]:
    document: dict[str, Any] = (await http.get(f"/v2/shells/{name}")).json()
    return document


def _error(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["error"]["code"]


async def test_folder_and_exported_variables_last_from_line_to_line(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    first = await _run(http, "mkdir -p a/b; cd a/b; export ONE=1 TWO='x\ny  z'; LOCAL=1; f() { :; }", actor="ann")
    assert first["exit"]["shell"] == {"name": "s", "cwd": f"{guest.workdir}/a/b", "is_kept": True, "why": ""}
    assert (first["actor"], first["shell_name"], first["argv"][1]) == ("ann", "s", "-c")
    assert await _say(http, 'pwd; echo "$ONE $TWO [$LOCAL]"; command -v f') == f"{guest.workdir}/a/b\n1 x\ny  z []\n"
    assert await _say(http, "cd ..; cd - > /dev/null; cd /; cd -") == f"{guest.workdir}/a/b\n"
    state = await _state(http)
    assert (state["cwd"], state["queue"]) == (f"{guest.workdir}/a/b", [])
    assert {"ONE", "TWO", "PATH", "HOME"} <= set(state["env"]) and "LOCAL" not in state["env"]
    assert "x\ny" not in str(state)
    assert await _say(http, "pwd", name="other") == f"{guest.workdir}\n"


_TOO_LARGE = "cd /usr; export A=$(head -c 131000 /dev/zero | tr '\\0' x) B=$(head -c 9000 /dev/zero | tr '\\0' x)"
KEPT_LINES = (
    ("true", 0, "/etc", ""),
    ("exit 3", 3, "/etc", ""),
    ("cd /usr; exit 4", 4, "/usr", ""),
    ("cd /usr; set -eu; false; echo no", 1, "/usr", ""),
    ("trap 'echo bye' EXIT; cd /usr", 0, "/usr", ""),
    ("(cd /usr); cd /nowhere", 1, "/etc", ""),
    ("if", 2, "/etc", ""),
    ("cd /usr; exec 3>/dev/null; echo x >&3", 0, "/usr", ""),
    ("cd /usr; exec true", 0, "/etc", "did not give its state back"),
    ("cd /usr; kill -KILL $$", None, "/etc", "did not give its state back"),
    (
        "cd /usr; export BIG=$(head -c 131000 /dev/zero | tr '\\0' x) MORE=$(head -c 9000 /dev/zero | tr '\\0' x)",
        0,
        "/etc",
        "KiB",
    ),
)


async def test_what_a_line_does_to_its_shell_decides_what_is_kept(http: httpx.AsyncClient) -> None:
    for line, code, cwd, why in KEPT_LINES:
        await _run(http, "cd /etc")
        end = (await _run(http, line))["exit"]
        assert end["code"] in (code, 2 if code == 1 else code), line
        assert (end["shell"]["cwd"], end["shell"]["is_kept"]) == (cwd, not why), line
        assert why in end["shell"]["why"]
        assert await _say(http, "pwd") == f"{cwd}\n"


async def test_variables_can_be_removed_changed_and_hold_any_byte_but_nul(http: httpx.AsyncClient) -> None:
    await http.put("/v2/launch", json={"env": {"LAUNCHED": "1", "KEPT": "2"}})
    await _run(http, "unset LAUNCHED; export BYTES=$(printf 'a\\377\\001\\n\\303\\251b') EMPTY= PATH=/nowhere")
    assert await _say(
        http, 'echo "[$LAUNCHED] [$KEPT] [${EMPTY-unset}]"; printf %s "$BYTES" | /usr/bin/od -An -tx1'
    ) == ("[] [2] []\n 61 ff 01 0a c3 a9 62\n")
    assert (await _run(http, "ls"))["exit"]["code"] == 127


async def test_a_folder_that_is_gone_is_said_and_the_line_runs_in_the_next_above(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _run(http, "mkdir -p x/y; cd x/y")
    (guest.workdir / "x/y").rmdir()
    job = await _run(http, "pwd")
    assert base64.b64decode(job["output"]["stdout"]).decode() == f"{guest.workdir}/x\n"
    assert base64.b64decode(job["output"]["stderr"]).decode() == (
        f"sbx: {guest.workdir}/x/y is gone; this line runs in {guest.workdir}/x\n"
    )


async def test_lines_queue_in_order_each_with_its_author(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await _post(http, "while ! [ -e go ]; do sleep 0.02; done; cd /etc", wait_s=0, actor="ann")
    second = await _post(http, "pwd; export A=1", wait_s=0, actor="bob", id="second")
    assert (second.status_code, second.json()["state"], second.json()["position"]) == (202, "queued", 1)
    third = asyncio.create_task(_post(http, "pwd; echo $A", actor="eve"))
    while len(queue := (await _state(http))["queue"]) < 3:
        await asyncio.sleep(0)
    assert [(line["actor"], line["state"]) for line in queue] == [
        ("ann", "running"),
        ("bob", "queued"),
        ("eve", "queued"),
    ]
    assert _error(await http.get("/v2/jobs/second")) == (404, "not_found")
    (guest.workdir / "go").touch()
    last = (await third).json()
    assert base64.b64decode(last["output"]["stdout"]) == b"/etc\n1\n"
    again = await _post(http, "pwd; export A=1", actor="bob", id="second")
    assert (again.status_code, again.json()["exit"]["shell"]["cwd"]) == (200, "/etc")


async def test_a_line_that_waits_is_followed_until_its_end_and_can_be_taken_back(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _post(http, "while ! [ -e go ]; do sleep 0.02; done", wait_s=0)
    body = {"id": "f", "line": "echo now; exit 3"}

    async def frames(document: dict[str, str]) -> list[wire.Frame]:
        reply = await http.post("/v2/shells/s", params={"follow": 1}, json=document)
        return list(FrameDecoder().feed(reply.content))

    following = asyncio.create_task(frames(body))
    dropped = asyncio.create_task(frames({"id": "g", "line": "touch never"}))
    while len((await _state(http))["queue"]) < 3:
        await asyncio.sleep(0)
    assert _error(await _post(http, "echo other", id="f")) == (409, "conflict")
    assert (await http.delete("/v2/shells/s/lines/g")).status_code == 200
    assert wire.payload_json((await dropped)[-1])["code"] == "line_dropped"
    (guest.workdir / "go").touch()
    seen = await following
    assert [frame.type for frame in seen] == [
        *(FrameType.HEARTBEAT, FrameType.JOB, FrameType.DATA, FrameType.EXIT),
    ]
    assert wire.payload_json(seen[-1])["code"] == 3
    assert not (guest.workdir / "never").exists()


async def test_a_line_may_have_a_terminal_and_input_as_any_job(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await _run(http, "cd /etc")
    tty = {"cols": 70, "rows": 20}
    await _post(http, "stty -echo; stty size; read where; cd $where", wait_s=0, id="t", tty=tty)
    async with attached(guest.url, "t") as me:
        await me.until_output(b"20 70")
        await me.send(FrameType.STDIN, 0, b"/usr\n")
        await me.until_closed()
    assert me.exit is not None and me.exit["shell"]["cwd"] == "/usr"
    assert await _say(http, "env | grep -c ^TERM=") == "0\n"


async def test_a_timeout_ends_the_line_and_the_shell_goes_on(http: httpx.AsyncClient) -> None:
    await _run(http, "cd /etc")
    job = await _run(http, "setsid sleep 1000 & sleep 1000", timeout_s=0.3, kill_grace_s=0)
    assert job["exit"]["timed_out"] and not job["exit"]["shell"]["is_kept"]
    assert await _say(http, "pwd") == "/etc\n"


async def test_state_and_queue_outlive_a_server_that_is_killed(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await _run(http, "cd /etc; export A=\"$(printf 'a\\377')\"")
    await _post(http, f"while ! [ -e {guest.workdir}/go ]; do sleep 0.02; done; cd /usr", wait_s=0, id="running")
    await _post(http, 'pwd; printf %s "$A" | od -An -tx1', wait_s=0, id="queued", actor="bob")
    await guest.kill_server()
    assert [line["id"] for line in (await _state(http))["queue"]] == ["running", "queued"]
    (guest.workdir / "go").touch()
    again = await _post(http, 'pwd; printf %s "$A" | od -An -tx1', id="queued", actor="bob")
    assert base64.b64decode(again.json()["output"]["stdout"]) == b"/usr\n 61 ff\n"
    await guest.kill_server()
    assert (await http.get("/v2/jobs/running")).json()["exit"]["shell"]["cwd"] == "/usr"
    assert await _say(http, "pwd") == "/usr\n"
    await http.delete("/v2/shells/s")
    await guest.kill_server()
    assert (await http.get("/v2/shells")).json() == {"shells": []}


async def test_a_line_that_ends_while_the_server_is_dead_still_moves_its_shell(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    script = "touch up; while ! [ -e go ]; do sleep 0.01; done; cd /usr"
    await _post(http, script, wait_s=0, id="a")
    while not (guest.workdir / "up").exists():
        await asyncio.sleep(0.01)
    (guest.workdir / "go").touch()
    await guest.kill_server()
    assert await _say(http, "pwd") == "/usr\n"


async def test_deleting_a_shell_forgets_its_queue_and_ends_its_line(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    await _post(http, "cd /etc; sleep 1000", wait_s=0, id="r", kill_grace_s=0)
    waiting = asyncio.create_task(_post(http, "touch never", id="w"))
    while len((await _state(http))["queue"]) < 2:
        await asyncio.sleep(0)
    assert (await http.delete("/v2/shells/s")).status_code == 200
    assert _error(await waiting) == (410, "line_dropped")
    assert (await http.get("/v2/jobs/r", params={"wait_s": 20})).json()["exit"]["signal"] == 9
    assert _error(await http.get("/v2/shells/s")) == (404, "not_found")
    assert await _say(http, "pwd; ls") == f"{guest.workdir}\n"


async def test_a_deleted_job_of_a_line_lets_the_next_line_run(http: httpx.AsyncClient) -> None:
    await _post(http, "cd /etc; sleep 1000", wait_s=0, id="r")
    following = asyncio.create_task(_say(http, "pwd; cd /usr"))
    while len((await _state(http))["queue"]) < 2:
        await asyncio.sleep(0)
    await http.delete("/v2/jobs/r")
    assert (await following).startswith("/")
    assert (await _state(http))["cwd"] == "/usr"


async def test_a_long_line_runs_and_a_longer_one_is_refused(http: httpx.AsyncClient) -> None:
    text = "x" * 90_000
    assert await _say(http, f"printf %s {text} | wc -c") == "90000\n"
    assert _error(await _post(http, "y" * 100_000)) == (413, "argv_too_long")


BAD_LINES: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"id": "a"}, 400, "bad_line"),
    ({"id": "a", "line": "a\0"}, 400, "bad_line"),
    ({"id": "a", "line": ["true"]}, 400, "bad_line"),
    ({"id": "a", "line": "true", "cwd": "/"}, 400, "bad_line"),
    ({"id": "a", "line": "true", "env": {"A": "1"}}, 400, "bad_line"),
    ({"id": "", "line": "true"}, 400, "bad_id"),
    ({"id": "a", "line": "true", "tty": 1}, 400, "bad_tty"),
)


async def test_every_wrong_line_has_its_own_error_and_makes_no_shell(http: httpx.AsyncClient) -> None:
    for body, status, code in BAD_LINES:
        assert _error(await http.post("/v2/shells/s", json=body)) == (status, code), body
    assert _error(await http.post("/v2/shells/a b", json={"id": "a", "line": "true"})) == (400, "bad_name")
    stale = {wire.BOOT_HEADER: "0" * 32}
    assert (await http.post("/v2/shells/s", json={"id": "a", "line": "true"}, headers=stale)).status_code == 410
    assert (await http.get("/v2/shells")).json() == {"shells": []}


async def test_words_are_completed_where_the_shell_is(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    for name in ("src/main.py", "src/many/x", "src/.hidden", "src/with space", "src/other"):
        (guest.workdir / name).parent.mkdir(parents=True, exist_ok=True)
        (guest.workdir / name).touch()

    async def complete(word: str, **query: str | int) -> dict[str, Any]:
        reply = await http.get("/v2/shells/s/complete", params={"word": word, **query})
        assert reply.status_code == 200, reply.text
        document: dict[str, Any] = reply.json()
        return document

    def names(answer: dict[str, Any]) -> list[tuple[str, bool]]:
        return [(match["name"], match["is_folder"]) for match in answer["matches"]]

    assert names(await complete("src/ma")) == [("main.py", False), ("many", True)]
    await _run(http, "cd src; export HOME=$PWD/many")
    assert names(await complete("")) == [("main.py", False), ("many", True), ("other", False), ("with space", False)]
    assert names(await complete(".h")) == [(".hidden", False)]
    assert names(await complete("~/")) == [("x", False)]
    assert names(await complete("../sr")) == [("src", True)]
    assert names(await complete("/etc/pass"))[0] == ("passwd", False)
    assert names(await complete("nowhere/x")) == names(await complete("main.py/")) == []
    few = await complete("", limit=1)
    assert (len(few["matches"]), few["is_whole"]) == (1, False)
    assert ("mkdir", False) in names(await complete("mkd", kind="command"))


async def test_completion_in_a_shared_file_system_stays_in_the_sandbox(tmp_path: Path) -> None:
    running = running_guest(tmp_path, env={"SBX_ROOT": str(tmp_path / "work")})
    async with running as guest, httpx.AsyncClient(base_url=guest.url) as http:
        assert (await http.get("/v2/shells/s/complete", params={"word": "/etc/"})).status_code == 403


async def test_the_values_of_variables_are_in_no_log(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    await _run(http, "export SECRET=swordfish-$((40+2))")
    await guest.kill_server()
    await _run(http, "true")
    assert b"swordfish-42" not in guest.log_file.read_bytes()
    for path in ("/v2/jobs", "/v2/shells", "/v2/shells/s"):
        assert "swordfish-42" not in (await http.get(path)).text


async def test_a_sandbox_without_bash_has_the_same_shells(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "env", "mkdir", "cat"):
        (programs / name).symlink_to(next(f for d in ("/bin", "/usr/bin") if os.path.exists(f := f"{d}/{name}")))
    prefix = ("env", f"PATH={programs}")
    running = running_guest(tmp_path, prefix=prefix)
    async with running as guest, httpx.AsyncClient(base_url=guest.url, timeout=30) as http:
        job = await _run(http, "cd /etc; export A=1; exit 2")
        assert (job["argv"][0], job["exit"]["code"], job["exit"]["shell"]["cwd"]) == ("sh", 2, "/etc")
        assert await _say(http, "pwd; echo $A") == "/etc\n1\n"
