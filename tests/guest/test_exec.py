"""Commands through the host's client, against a real guest over a real socket."""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sbxguest import wire
from sbxtui.core.errors import Conflict, NotFound, TimedOut, Unsupported, UsageError
from sbxtui.guest.client import GuestClient
from sbxtui.localcloud.runtimes.base import readable_path
from tests.support.guest_process import GuestProcess, children_of, python_for_everyone, running_guest

LIMIT_S = 30


@pytest.fixture
async def client(guest: GuestProcess) -> AsyncIterator[GuestClient]:
    async with GuestClient(guest.url, None) as client, asyncio.timeout(LIMIT_S):
        yield client


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :][:1] not in (b"Z", b"X")


async def _until_dead(pid: int) -> None:
    async with asyncio.timeout(5):
        while _is_alive(pid):
            await asyncio.sleep(0.01)


async def test_output_and_code_of_a_command_come_back_byte_exact(client: GuestClient) -> None:
    script = r"printf 'a\000\377\303'; printf '\251' ; printf 'bad\n' >&2; exit 7"
    result = await client.exec(["sh", "-c", script])
    assert (result.exit_code, result.stdout, result.stderr) == (7, b"a\x00\xff\xc3\xa9", b"bad\n")
    assert not (result.timed_out or result.truncated or result.lingering or result.signal)


async def test_a_command_runs_in_the_workdir_with_the_launch_environment_and_none_of_the_guests(
    guest: GuestProcess, client: GuestClient
) -> None:
    (guest.workdir / "sub").mkdir()
    await client.launch(env={"A": "launch", "B": "launch"}, workdir=str(guest.workdir))
    result = await client.exec(["sh", "-c", "pwd; echo $A $B; env"], cwd="sub", env={"B": "call"})
    lines = result.stdout.decode().splitlines()
    assert lines[:2] == [str(guest.workdir / "sub"), "launch call"]
    assert [line for line in lines if line.startswith(("SBX_", "AGENTD_"))] == ["SBX_SANDBOX=sandbox"]


async def test_arguments_that_are_no_text_arrive_as_the_bytes_they_are(client: GuestClient) -> None:
    odd = b"\xff\xfe \xc3".decode("utf-8", "surrogateescape")
    result = await client.exec(["printf", "%s|", odd, "", "é\n"], env={"ODD": odd})
    assert result.stdout == b"\xff\xfe \xc3||\xc3\xa9\n|"


async def test_a_line_runs_in_a_shell(client: GuestClient) -> None:
    result = await client.exec("echo $((20 + 3)) | tr 2 4")
    assert (result.exit_code, result.stdout) == (0, b"43\n")


async def test_a_signal_is_128_and_its_number(client: GuestClient) -> None:
    result = await client.exec(["sh", "-c", "kill -SEGV $$"])
    assert (result.exit_code, result.signal) == (128 + signal.SIGSEGV, signal.SIGSEGV)


async def test_what_cannot_be_found_is_127_and_what_cannot_be_run_126(guest: GuestProcess, client: GuestClient) -> None:
    (guest.workdir / "plain").write_text("text")
    missing = await client.exec(["no-such-program"])
    empty = await client.exec([""])
    denied = await client.exec(["./plain"])
    assert (missing.exit_code, missing.stderr) == (127, b"sbx: no-such-program: command not found\n")
    assert (empty.exit_code, empty.stderr) == (127, b"sbx: : command not found\n")
    assert (denied.exit_code, denied.stderr) == (126, b"sbx: ./plain: Permission denied\n")


async def test_a_missing_working_directory_is_named_as_such(client: GuestClient) -> None:
    with pytest.raises(UsageError, match=r"working directory \(cwd\) `/no/such` cannot be used: No such file"):
        await client.exec(["true"], cwd="/no/such")


async def test_requests_that_cannot_be_are_refused_in_words(client: GuestClient) -> None:
    for command, env, words in (
        (["a\0b"], {}, "NUL"),
        (["true"], {"A=B": "x"}, "env name"),
        (["true"], {"": "x"}, "env name"),
        (["true", "x" * 200_000], {}, "too long"),
    ):
        with pytest.raises(UsageError, match=words):
            await client.exec(command, env=env)


async def test_a_timeout_kills_children_and_those_who_escaped_into_their_own_sessions(
    guest: GuestProcess, client: GuestClient
) -> None:
    script = """
    echo partial
    sh -c 'echo $$ > child; exec sleep 1000' &
    setsid sh -c 'echo $$ > escaped; exec sleep 1000' &
    (setsid env -i sh -c 'echo $$ > twice; trap "" TERM HUP; while :; do /bin/sleep 1; done' &) &
    while ! [ -s child -a -s escaped -a -s twice ]; do sleep 0.02; done
    echo up >&2
    trap '' TERM
    sleep 1000
    """
    result = await client.exec(["sh", "-c", script], timeout_s=1.0)
    assert result.timed_out
    assert (result.exit_code, result.stdout, result.stderr) == (124, b"partial\n", b"up\n")
    for name in ("child", "escaped", "twice"):
        assert not _is_alive(int((guest.workdir / name).read_text())), name


async def test_processes_that_flee_from_session_to_session_are_caught(guest: GuestProcess, client: GuestClient) -> None:
    flee = guest.workdir / "flee"
    flee.write_text("setsid sh $0 &\n")
    result = await client.exec(["sh", "-c", "setsid sh ./flee; exec sleep 1000"], timeout_s=0.3)
    assert (result.timed_out, result.lingering) == (True, False)
    commands = [entry / "cmdline" for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    assert not [path for path in commands if path.exists() and path.read_bytes() == b"sh\0./flee\0"]


async def test_what_a_program_does_on_term_is_waited_for(client: GuestClient) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    result = await client.exec(["sh", "-c", script], timeout_s=0.5)
    assert (result.timed_out, result.stdout) == (True, b"up\nbye\n")


async def test_a_server_left_in_the_background_does_not_hold_the_command(client: GuestClient) -> None:
    result = await client.exec(["sh", "-c", "sleep 1000 & echo started"])
    assert (result.exit_code, result.stdout, result.lingering) == (0, b"started\n", True)


@pytest.mark.long
async def test_much_output_loses_nothing_and_keeps_its_order(client: GuestClient) -> None:
    size = 48 * 1024 * 1024
    result = await client.exec(["sh", "-c", f"seq 1 100000000 | head -c {size}; echo end >&2"])
    expected = hashlib.sha256()
    number, left = 1, size
    while left:
        block = b"".join(b"%d\n" % n for n in range(number, number + 100_000))[:left]
        expected.update(block)
        left -= len(block)
        number += 100_000
    assert len(result.stdout) == size
    assert hashlib.sha256(result.stdout).digest() == expected.digest()
    assert (result.stderr, result.truncated) == (b"end\n", False)


async def test_a_slow_reader_slows_the_command_and_loses_nothing(client: GuestClient) -> None:
    digest, size = hashlib.sha256(), 0

    async def slowly(channel: str, data: bytes) -> None:
        nonlocal size
        size += len(data)
        digest.update(data)
        await asyncio.sleep(0.001)

    result = await client.exec(["sh", "-c", "seq 1 4000000"], on_output=slowly)
    expected = b"".join(b"%d\n" % n for n in range(1, 4_000_001))
    assert (size, result.truncated) == (len(expected), False)
    assert digest.digest() == hashlib.sha256(expected).digest()


async def test_stdin_reaches_the_command_whole_and_ends(client: GuestClient) -> None:
    data = os.urandom(3 * 1024 * 1024 + 17)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 1_000_003):
            yield data[start : start + 1_000_003]

    assert (await client.exec(["cat"], stdin=data)).stdout == data
    assert (await client.exec(["cat"], stdin=pieces())).stdout == data
    assert (await client.exec(["cat"], stdin=b"")).stdout == b""
    assert (await client.exec(["cat"])).stdout == b""


async def test_a_command_that_leaves_its_input_unread_ends_all_the_same(client: GuestClient) -> None:
    result = await client.exec(["sh", "-c", "head -c 5; exit 4"], stdin=b"12345" + bytes(4 * 1024 * 1024))
    assert (result.exit_code, result.stdout) == (4, b"12345")


async def test_the_first_byte_comes_while_the_command_still_runs(client: GuestClient) -> None:
    first = asyncio.Event()

    async def on_output(channel: str, data: bytes) -> None:
        assert (channel, data) == ("out", b"first\n")
        first.set()

    run = asyncio.create_task(client.exec(["sh", "-c", "echo first; exec sleep 1000"], on_output=on_output, job_id="j"))
    await first.wait()
    await client.jobs.signal("j", "KILL", to="leader")
    assert (await run).exit_code == 137


async def test_sixteen_commands_at_once_keep_their_outputs_apart(client: GuestClient) -> None:
    results = await asyncio.gather(*(client.exec(["sh", "-c", f"seq {n} 20000; exit {n}"]) for n in range(1, 17)))
    for n, result in enumerate(results, start=1):
        assert result.exit_code == n
        assert result.stdout == b"".join(b"%d\n" % i for i in range(n, 20_001))


async def test_a_server_killed_in_mid_stream_loses_and_doubles_no_byte(
    guest: GuestProcess, client: GuestClient
) -> None:
    received = bytearray()

    async def on_output(_channel: str, data: bytes) -> None:
        received.extend(data)

    script = "i=0; while [ $i -lt 60 ]; do seq $i 20000; i=$((i + 1)); sleep 0.02; done; exit 9"
    run = asyncio.create_task(client.exec(["sh", "-c", script], on_output=on_output))
    for _ in range(4):
        before = len(received)
        while len(received) == before:
            await asyncio.sleep(0.005)
        await guest.kill_server()
    result = await run
    expected = b"".join(b"".join(b"%d\n" % n for n in range(i, 20_001)) for i in range(60))
    assert result.exit_code == 9
    assert hashlib.sha256(received).digest() == hashlib.sha256(expected).digest()


async def test_the_code_of_a_command_that_ended_while_the_server_was_down_is_kept(
    guest: GuestProcess, client: GuestClient
) -> None:
    run = asyncio.create_task(
        client.exec(["sh", "-c", "echo up; touch up; while [ -e up ]; do sleep 0.01; done; exit 5"])
    )
    while not (guest.workdir / "up").exists():
        await asyncio.sleep(0.01)
    server = guest.server_pid
    os.kill(server, signal.SIGSTOP)
    (guest.workdir / "up").unlink()
    os.kill(server, signal.SIGKILL)
    result = await run
    assert (result.exit_code, result.stdout) == (5, b"up\n")


async def test_a_timeout_is_kept_over_a_restart_of_the_server(guest: GuestProcess, client: GuestClient) -> None:
    run = asyncio.create_task(client.exec(["sh", "-c", "echo $$ > pid; exec sleep 1000"], timeout_s=2.0))
    while not (guest.workdir / "pid").exists():
        await asyncio.sleep(0.01)
    await guest.kill_server()
    assert (await run).timed_out


async def test_orphans_are_reaped(guest: GuestProcess, client: GuestClient) -> None:
    await client.exec(["sh", "-c", "for i in $(seq 200); do (true &) ; done; sleep 0.2"])
    async with asyncio.timeout(5):
        while [pid for pid in children_of(guest.init_pid) if not _is_alive(pid)]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("ends_with_caller", [True, False])
async def test_a_cancelled_call_ends_its_command(
    guest: GuestProcess, client: GuestClient, ends_with_caller: bool
) -> None:
    pid_file = guest.workdir / "pid"
    run = asyncio.create_task(
        client.exec(["sh", "-c", "echo $$ > pid; exec sleep 1000"], ends_with_caller=ends_with_caller)
    )
    while not (pid_file.exists() and pid_file.read_text()):
        await asyncio.sleep(0.01)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    await _until_dead(int(pid_file.read_text()))


async def test_a_new_boot_is_a_conflict_and_nothing_runs(tmp_path: Path) -> None:
    async with running_guest(tmp_path / "a") as first, GuestClient(first.url, None) as client:
        await client.hello()
        port = first.port
    async with running_guest(tmp_path / "b", env={"AGENTD_PORT": str(port)}) as second:
        async with GuestClient(f"http://127.0.0.1:{port}", None) as late:
            late._hello = client._hello
            with pytest.raises(Conflict, match="started anew"):
                await late.exec(["touch", "ran"])
        assert not (second.workdir / "ran").exists()


async def test_waiting_for_a_guest_that_is_not_there_ends(tmp_path: Path) -> None:
    async with GuestClient(f"unix:{tmp_path}/none.sock", None) as client:
        with pytest.raises(TimedOut, match="did not answer within"):
            await client.wait_until_ready(timeout_s=0.2)


async def test_hello_tells_who_the_guest_is(guest: GuestProcess, client: GuestClient) -> None:
    hello = await client.wait_until_ready(timeout_s=5)
    assert (hello.generation, hello.workdir, len(hello.boot_id)) == (2, str(guest.workdir), 32)
    assert "jobs" in hello.features
    assert hello.now is not None and hello.now.tzinfo is not None
    await guest.kill_server()
    assert (await client.hello()).boot_id == hello.boot_id


async def test_a_job_of_another_name_is_not_found(client: GuestClient) -> None:
    with pytest.raises(NotFound, match="no job `nobody`"):
        await client.jobs.get("nobody")


PLAIN_USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all")


PLAIN_PYTHON = python_for_everyone() if os.geteuid() == 0 and shutil.which("setpriv") else None


@pytest.mark.skipif(not PLAIN_PYTHON, reason="needs root, setpriv and a Python that other users may run")
@pytest.mark.skipif(not readable_path(Path(wire.__file__)), reason="other users may not read this checkout")
async def test_a_guest_without_privileges_does_the_same(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to(Path(tempfile.gettempdir()) / f"pytest-of-{getpass.getuser()}"):
            folder.chmod(0o755)
    (tmp_path / "work").mkdir()
    os.chown(tmp_path / "work", 65534, 65534)
    running = running_guest(tmp_path, prefix=PLAIN_USER, python=str(PLAIN_PYTHON))
    async with running as guest, GuestClient(guest.url, None) as client:
        result = await client.exec(["sh", "-c", "id -u; setsid sleep 1000 & echo $! > pid; sleep 1000"], timeout_s=0.5)
        assert (result.stdout, result.timed_out) == (b"65534\n", True)
        await _until_dead(int((guest.workdir / "pid").read_text()))
        with pytest.raises(Unsupported, match="cannot start a job as uid 0"):
            await client.exec(["true"], user="root")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run jobs as another user")
async def test_jobs_run_as_the_job_user_and_cannot_read_the_guest(tmp_path: Path) -> None:
    env = {"SBX_JOB_UID": "65534", "SBX_JOB_GID": "65534"}
    async with running_guest(tmp_path, env=env) as guest, GuestClient(guest.url, None) as client:
        guest.workdir.chmod(0o777)
        who = await client.exec(["id", "-u"])
        root = await client.exec(["id", "-u"], user="root")
        grouped = await client.exec(["sh", "-c", "id -u; id -g"], user="root:12")
        spy = await client.exec(["sh", "-c", f"cat /proc/{guest.server_pid}/environ /proc/{guest.init_pid}/environ"])
    assert (who.stdout, root.stdout, grouped.stdout) == (b"65534\n", b"0\n", b"0\n12\n")
    assert (spy.exit_code, spy.stdout) == (1, b"")


@pytest.mark.parametrize("stdin", [None, b"x"])
async def test_a_program_gets_three_descriptors_and_no_more(client: GuestClient, stdin: bytes | None) -> None:
    listing = "import os; print(*(n for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')))"
    for _ in range(3):
        assert (await client.exec(["python3", "-c", listing], stdin=stdin)).stdout == b"0 1 2\n"
