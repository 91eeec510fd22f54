"""Jobs on a terminal, as `/v2/jobs` runs them in a real guest."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sbxguest import wire
from sbxguest.wire import Channel, FrameDecoder, FrameType
from tests.support.guest_process import GuestProcess, running_guest

LIMIT_S = 60
TTY = {"cols": 101, "rows": 33}


@pytest.fixture
async def http(guest: GuestProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=guest.url, timeout=30) as http, asyncio.timeout(LIMIT_S):
        yield http


async def _start(http: httpx.AsyncClient, job_id: str, script: str, **more: Any) -> dict[str, Any]:
    body = {"id": job_id, "argv": ["sh", "-c", script], "tty": TTY, **more}
    reply = await http.post("/v2/jobs", json=body)
    assert reply.status_code == 201, reply.text
    document: dict[str, Any] = reply.json()
    return document


async def _log(http: httpx.AsyncClient, job_id: str, *, follow: int = 1) -> tuple[bytes, dict[str, Any] | None]:
    """Everything the job wrote, and its EXIT."""
    frames = list(FrameDecoder().feed((await http.get(f"/v2/jobs/{job_id}/log", params={"follow": follow})).content))
    data = [frame for frame in frames if frame.type == FrameType.DATA]
    assert all(frame.channel == Channel.PTY for frame in data)
    is_over = bool(frames) and frames[-1].type == FrameType.EXIT
    return b"".join(frame.payload for frame in data), wire.payload_json(frames[-1]) if is_over else None


async def _run(http: httpx.AsyncClient, job_id: str, script: str, **more: Any) -> tuple[bytes, dict[str, Any]]:
    await _start(http, job_id, script, **more)
    output, end = await _log(http, job_id)
    assert end is not None
    return output, end


async def _until(http: httpx.AsyncClient, job_id: str, pattern: bytes) -> bytes:
    """Wait until the job's output so far matches."""
    while not re.search(pattern, output := (await _log(http, job_id, follow=0))[0]):
        await asyncio.sleep(0.01)
    return output


async def _type(http: httpx.AsyncClient, job_id: str, offset: int, data: bytes, **more: str | int) -> httpx.Response:
    return await http.post(f"/v2/jobs/{job_id}/stdin", params={"offset": offset, **more}, content=data)


async def test_a_program_on_a_terminal_has_its_size_its_kind_and_its_control(http: httpx.AsyncClient) -> None:
    script = 'stty size; echo "$TERM"; tty; test -t 0 && test -t 1 && test -t 2 && echo all > /dev/tty; exit 5'
    output, end = await _run(http, "t", script)
    assert re.fullmatch(rb"33 101\r\nxterm-256color\r\n/dev/pts/\d+\r\nall\r\n", output)
    assert (end["code"], end["lingering"]) == (5, False)
    assert end["totals"] == {"out": 0, "err": 0, "pty": len(output), "all": len(output)}
    job = (await http.get("/v2/jobs/t")).json()
    assert (job["stdin"], job["tty"]) == ("tty", {**TTY, "term": "xterm-256color"})


@pytest.mark.long
async def test_the_size_is_there_before_the_first_command_runs_every_time(http: httpx.AsyncClient) -> None:
    async def size(n: int) -> bytes:
        tty = {"cols": 40 + n, "rows": 10 + n}
        return (await _run(http, f"s{n}", "", argv=["stty", "size"], tty=tty))[0]

    for first in range(0, 200, 10):
        numbers = range(first, first + 10)
        expected = [b"%d %d\r\n" % (10 + n, 40 + n) for n in numbers]
        assert await asyncio.gather(*map(size, numbers)) == expected


async def test_the_environment_of_the_call_chooses_another_kind_of_terminal(http: httpx.AsyncClient) -> None:
    assert (await _run(http, "a", 'echo "$TERM"', tty={**TTY, "term": "vt100"}))[0] == b"vt100\r\n"
    assert (await _run(http, "b", 'echo "$TERM"', env={"TERM": "dumb"}))[0] == b"dumb\r\n"


async def test_a_new_size_reaches_the_program_in_the_foreground(http: httpx.AsyncClient) -> None:
    await _start(http, "r", "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done")
    await _until(http, "r", b"up")
    reply = await http.post("/v2/jobs/r/resize", json={"cols": 77, "rows": 22})
    assert reply.json()["tty"] == {"cols": 77, "rows": 22, "term": "xterm-256color"}
    assert (await _log(http, "r"))[0] == b"up\r\n22 77\r\n"
    assert (await http.post("/v2/jobs/r/resize", json={"cols": 0, "rows": 1})).status_code == 400


async def test_a_job_without_a_terminal_has_no_size(http: httpx.AsyncClient) -> None:
    await _start(http, "p", "exit 0", tty=None)
    reply = await http.post("/v2/jobs/p/resize", json=TTY)
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "no_tty")


async def test_no_byte_of_the_end_is_lost(http: httpx.AsyncClient) -> None:
    script = "stty -onlcr; i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; printf the-end"
    expected = b"".join(b"line %d\n" % n for n in range(300)) + b"the-end"

    async def tail(n: int) -> bytes:
        return (await _run(http, f"e{n}", script))[0]

    for first in range(0, 40, 8):
        assert set(await asyncio.gather(*map(tail, range(first, first + 8)))) == {expected}


async def test_what_is_typed_is_echoed_and_an_end_is_typed_as_a_terminal_does(http: httpx.AsyncClient) -> None:
    await _start(http, "c", "cat; echo over; cat; echo again", stdin="none")
    assert (await _type(http, "c", 0, b"one\n")).json() == {"accepted": 4}
    await _until(http, "c", b"one\r\none\r\n")
    assert (await _type(http, "c", 0, b"one\ntw")).json() == {"accepted": 6}
    await _until(http, "c", b"one\r\none\r\ntw$")
    for _ in range(2):
        assert (await http.post("/v2/jobs/c/eof", params={"offset": 6})).status_code == 200
    await _until(http, "c", b"over")
    assert (await _type(http, "c", 6, b"x\n", eof=1)).json() == {"accepted": 8}
    output, end = await _log(http, "c")
    assert (output, end and end["code"]) == (b"one\r\none\r\ntwtwover\r\nx\r\nx\r\nagain\r\n", 0)


async def test_two_who_type_each_count_their_own_bytes(http: httpx.AsyncClient) -> None:
    await _start(http, "w", "stty -echo; echo up; head -n 4; echo over")
    await _until(http, "w", b"up")
    for writer in ("ann", "bob", "ann"):
        reply = await _type(http, "w", 0, f"hello {writer}\n".encode(), writer=writer)
        assert reply.json() == {"accepted": 10}
    await _type(http, "w", 10, b"bye\n", writer="bob")
    await _type(http, "w", 0, b"!\n")
    assert (await _log(http, "w"))[0] == b"up\r\nhello ann\r\nhello bob\r\nbye\r\n!\r\nover\r\n"


async def test_interrupt_and_quit_are_bytes_that_reach_the_program_in_the_foreground(http: httpx.AsyncClient) -> None:
    await _start(http, "i", "trap 'echo got; exit 3' INT; echo up; while :; do sleep 0.05; done")
    await _until(http, "i", b"up")
    await _type(http, "i", 0, b"\x03")
    output, end = await _log(http, "i")
    assert b"got" in output and end is not None and end["code"] == 3


async def test_input_nobody_reads_blocks_neither_output_nor_others_and_ends_with_the_job(
    http: httpx.AsyncClient,
) -> None:
    await _start(http, "b", "stty raw -echo; echo up; while :; do echo tick; sleep 0.02; done")
    await _until(http, "b", b"up")
    typing = asyncio.create_task(_type(http, "b", 0, bytes(1 << 20)))
    await _until(http, "b", rb"(?s)tick.*tick.*tick")
    assert (await http.delete("/v2/jobs/b")).status_code == 200
    assert (await typing).status_code in (404, 409)


async def test_a_program_that_closes_its_terminal_for_a_while_is_not_over(http: httpx.AsyncClient) -> None:
    script = "exec </dev/null >/dev/null 2>&1; sleep 0.3; echo back >/dev/tty; exit 4"
    output, end = await _run(http, "q", script)
    assert (output, end["code"]) == (b"back\r\n", 4)


async def test_the_end_of_the_leader_hangs_up_on_the_rest(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    script = "sh -c 'trap \"echo hup >> hups; exit\" HUP; echo up > up; while :; do sleep 0.05; done' & "
    output, end = await _run(http, "h", script + "while ! [ -e up ]; do sleep 0.01; done; echo bye")
    assert (output[:5], end["code"]) == (b"bye\r\n", 0)
    hups = guest.workdir / "hups"
    while not (hups.exists() and hups.read_text() == "hup\n"):
        await asyncio.sleep(0.01)


async def test_a_shell_that_ignores_a_request_to_end_is_hung_up_on_at_once(http: httpx.AsyncClient) -> None:
    await _start(http, "k", "trap '' TERM; echo up; while :; do sleep 0.05; done", timeout_s=0.5, kill_grace_s=50)
    _, end = await _log(http, "k")
    assert end is not None and (end["timed_out"], end["signal"]) == (True, 1)


FLEEING = """
trap '' TERM HUP INT
setsid sh -c 'trap "" TERM HUP; (setsid sleep 1000 & echo $! > two); echo $$ > one; while :; do sleep 1000; done' &
(setsid sleep 1000 & echo $! > three)
while ! [ -s one -a -s two -a -s three ]; do sleep 0.01; done
echo $$ > four; while :; do sleep 1000; done
"""


@pytest.mark.parametrize("how", ["timeout", "delete", "signal"])
async def test_nothing_of_a_job_on_a_terminal_escapes_its_end(
    guest: GuestProcess, http: httpx.AsyncClient, how: str
) -> None:
    await _start(http, "f", FLEEING, kill_grace_s=0, **({"timeout_s": 1} if how == "timeout" else {}))
    names = [guest.workdir / name for name in ("one", "two", "three", "four")]
    while not all(name.exists() and name.read_text().strip() for name in names):
        await asyncio.sleep(0.01)
    pids = [int(name.read_text()) for name in names]
    if how == "delete":
        await http.delete("/v2/jobs/f")
    elif how == "signal":
        await http.post("/v2/jobs/f/signal", json={"sig": "KILL", "to": "tree"})
    if how != "delete":
        end = (await _log(http, "f"))[1]
        assert end is not None and end["signal"] == 9
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        await asyncio.sleep(0.01)


async def test_a_line_of_a_hundred_thousand_bytes_arrives_whole(http: httpx.AsyncClient) -> None:
    output, _ = await _run(http, "l", "head -c 100000 /dev/zero | tr '\\0' x; echo")
    assert output == b"x" * 100_000 + b"\r\n"


async def test_letters_that_come_in_two_halves_are_the_same_bytes(http: httpx.AsyncClient) -> None:
    script = "stty raw; printf '\\303'; sleep 0.05; printf '\\251'; printf '\\377\\000\\001'"
    assert (await _run(http, "u", script))[0] == b"\xc3\xa9\xff\x00\x01"


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
async def test_a_program_that_cannot_be_started_says_so_on_its_terminal(
    http: httpx.AsyncClient, program: str, code: int
) -> None:
    output, end = await _run(http, "x", "", argv=[program])
    assert output.startswith(f"sbx: {program}: ".encode()) and output.endswith(b"\r\n")
    assert end["code"] == code


async def test_terminals_survive_a_server_that_is_killed_again_and_again(
    guest: GuestProcess, http: httpx.AsyncClient
) -> None:
    script = "stty -echo -onlcr; i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done; cat; exit 9"
    await _start(http, "s", script)
    for _ in range(3):
        await guest.kill_server()
    await http.post("/v2/jobs/s/resize", json={"cols": 50, "rows": 20})
    await guest.kill_server()
    assert (await http.get("/v2/jobs/s")).json()["tty"]["cols"] == 50
    await _until(http, "s", b"\n29999\n")
    assert (await _type(http, "s", 0, b"still here\n", writer="w")).json() == {"accepted": 11}
    await guest.kill_server()
    assert (await _type(http, "s", 0, b"still here\nend\n", writer="w", eof=1)).json() == {"accepted": 15}
    output, end = await _log(http, "s")
    assert output == b"".join(b"%d\n" % n for n in range(30000)) + b"still here\nend\n"
    assert end is not None and end["code"] == 9


async def test_terminals_leave_no_descriptor_behind(guest: GuestProcess, http: httpx.AsyncClient) -> None:
    if not os.access(f"/proc/{guest.server_pid}/fd", os.R_OK):
        pytest.skip("the guest's descriptors are closed to everyone but root")

    await _run(http, "warm", "true")
    await http.delete("/v2/jobs/warm")
    before = guest.descriptors()
    for n in range(10):
        await _run(http, f"n{n}", "true")
        await http.delete(f"/v2/jobs/n{n}")
    await guest.has_no_more_descriptors_than(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run jobs as another user")
async def test_another_user_owns_the_terminal_of_its_job(tmp_path: Path) -> None:
    env = {"SBX_JOB_UID": "65534", "SBX_JOB_GID": "65534"}
    async with running_guest(tmp_path, env=env) as guest, httpx.AsyncClient(base_url=guest.url, timeout=30) as http:
        script = 'id -u; id -ru; stat -c %u "$(tty)"; echo direct > "$(tty)"; grep ^CapEff /proc/self/status'
        output, _ = await _run(http, "u", script, cwd="/")
    assert output == b"65534\r\n65534\r\n65534\r\ndirect\r\nCapEff:\t0000000000000000\r\n"
