"""The Python API: the same sandboxes as on the command line."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sbxtui import Sandbox, SyncSandbox
from sbxtui.core.errors import Conflict, FileMissing, SandboxEnded, SandboxNotFound, UsageError
from sbxtui.core.logs import LogLine
from tests.support.sbx import Result, Sbx, sbx_home

ROOT = Path(__file__).resolve().parents[1]

SEEDS_EXAMPLE = """
import asyncio
from sbxtui import Sandbox

async def main():
    sandbox = await Sandbox.create("my-sandbox", cpus=1, memory=512)
    out = await sandbox.exec("python", ["-c", "print('hi')"])
    print(out.stdout_text)
    await sandbox.stop()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sbx]:
    """One home, with a running sandbox called `app`, for all tests of the file."""
    with sbx_home(tmp_path_factory.mktemp("home")) as sbx:
        sbx.ok("create", "app", "-m", "512")
        yield sbx


@pytest.fixture
def sbx(shared: Sbx, monkeypatch: pytest.MonkeyPatch) -> Sbx:
    """The shared home, as that of this very process."""
    for name, value in shared.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(shared.home)
    return shared


def run(sbx: Sbx, *words: str) -> Result:
    """Run Python in a process of its own."""
    done = subprocess.run(
        [sys.executable, *words], env=sbx.environment(), cwd=sbx.home, capture_output=True, timeout=100, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


def names(sbx: Sbx) -> list[str]:
    """Of the sandboxes the command line sees; one that is ending has given its name away."""
    return [row["name"] for row in sbx.ok("ls", "--json").json if row["state"] != "TERMINATING"]


def test_a_program_written_for_the_seed_runs_with_only_its_import_changed(sbx: Sbx) -> None:
    done = run(sbx, "-X", "dev", "-c", SEEDS_EXAMPLE)
    assert (done.code, done.out.strip()) == (0, "hi"), done.err
    states = {row["name"]: row["state"] for row in sbx.ok("ls", "--json").json}
    assert states["my-sandbox"] == "SUSPENDED"
    sbx.ok("rm", "my-sandbox", "--yes")


async def test_a_sandbox_of_the_command_line_is_attached_used_and_left_alone(sbx: Sbx) -> None:
    async with await Sandbox.attach("ap") as sandbox:
        assert (sandbox.name, sandbox.endpoint.startswith("127.0.0.1:")) == ("app", True)
        ran = await sandbox.exec(
            "sh", ["-c", r'printf "$WHO $(pwd) \377"; echo no >&2; exit 3'], cwd="/tmp", env={"WHO": "me"}
        )
        assert (ran.exit_code, ran.stdout, ran.stderr) == (3, b"me /tmp \xff", b"no\n")
        assert (ran.stdout_text, ran.stderr_text) == ("me /tmp �", "no\n")
        late = await sandbox.exec("sleep", ["60"], timeout=0.2)
        assert (late.exit_code, late.timed_out) == (124, True)
    assert "app" in names(sbx)


async def test_files_are_written_whole_and_read_back(sbx: Sbx) -> None:
    content = bytes(range(256)) * 10_000
    async with await Sandbox.attach("app") as sandbox:
        assert await sandbox.write_file("data", content) == len(content)
        assert await sandbox.read_file("data") == content
        await sandbox.write_file("/work/text", "häl")
        assert await sandbox.read_file("text") == "häl".encode()
        with pytest.raises(FileMissing):
            await sandbox.read_file("not-there")


async def test_a_created_sandbox_ends_with_its_block_also_when_that_fails(sbx: Sbx) -> None:
    with pytest.raises(ZeroDivisionError):
        async with await Sandbox.create("brief", memory=512, env={"A": "1"}, labels={"k": "v"}) as sandbox:
            assert (await sandbox.exec("printenv", ["A"])).stdout_text == "1\n"
            assert "brief" in await asyncio.to_thread(names, sbx)
            raise ZeroDivisionError
    assert "brief" not in names(sbx)
    await sandbox.terminate()
    with pytest.raises(SandboxEnded, match="was terminated") as ended:
        await sandbox.exec("true")
    assert "attach" not in ended.value.hint
    events = sbx.ok("events", "brief").out
    assert "python:you" in events


async def test_what_cannot_be_is_an_error_with_a_hint_and_leaves_nothing(sbx: Sbx) -> None:
    with pytest.raises(UsageError, match="no image has 777"):
        await Sandbox.create("odd", memory=777)
    with pytest.raises(SandboxNotFound):
        await Sandbox.attach("nobody")
    assert "odd" not in names(sbx)


async def test_the_sync_facade_works_inside_a_running_loop_too(sbx: Sbx) -> None:
    with SyncSandbox.create(memory=512) as sandbox:
        assert sandbox.exec("echo", ["hi"]).stdout_text == "hi\n"
        sandbox.stop()
        sandbox.start()
        sandbox.write_file("x", b"1")
        assert sandbox.read_file("x") == b"1"
        name = sandbox.name
    assert name not in names(sbx)
    with SyncSandbox.attach("app") as attached:
        assert attached.exec("true").exit_code == 0
    attached.close()
    with pytest.raises(SandboxNotFound):
        SyncSandbox.attach("nobody")


def test_the_sync_facade_names_each_method_of_a_sandbox_with_its_signature_and_words() -> None:
    told = {name for name in dir(Sandbox) if not name.startswith("_")}
    assert {name for name in dir(SyncSandbox) if not name.startswith("_")} == told
    for name in told - {"name", "id", "endpoint"}:
        one, twin = getattr(Sandbox, name), getattr(SyncSandbox, name)
        assert inspect.signature(twin) == inspect.signature(one), name
        assert not inspect.iscoroutinefunction(twin) and twin.__doc__ == one.__doc__, name


async def test_what_was_closed_says_so(sbx: Sbx) -> None:
    sandbox = await Sandbox.attach("app")
    sandbox.close()
    sandbox.close()
    for act in (lambda: sandbox.exec("true"), sandbox.stop, sandbox.start, lambda: sandbox.read_file("x")):
        with pytest.raises(Conflict, match="`app` is closed") as closed:
            await act()
        assert 'attach("app")' in closed.value.hint
    blocking = await asyncio.to_thread(SyncSandbox.attach, "app")
    blocking.close()
    with pytest.raises(Conflict, match="`app` is closed"):
        blocking.exec("true")
    assert blocking.name == "app"


async def test_a_program_sees_what_a_sandbox_says_uses_and_costs_and_keeps_it_awake(sbx: Sbx) -> None:
    async with await Sandbox.create("seen", memory=512, idle_s=600, budget_usd=1.0) as sandbox:
        await sandbox.exec("sh", ["-c", "echo one; echo two >&2; echo three"])
        assert sorted(line.text for line in await sandbox.logs(grep="^(one|two|three)$")) == ["one", "three", "two"]
        (last,) = await sandbox.logs(tail=1)
        assert last.text.endswith("ended with 0") and not last.is_output
        said: list[str] = []

        def take(line: LogLine) -> bool:
            said.append(line.text)
            return line.text == "three"

        await sandbox.follow_logs(take, tail=None)
        assert said[-1] == "three"
        usage = await sandbox.metrics()
        assert usage.memory_bytes and usage.processes and not usage.is_clock_off
        assert [one.at.replace(microsecond=0) for one in await sandbox.last_hour()][-1:] == [
            usage.at.replace(microsecond=0)
        ]
        bill = await sandbox.cost()
        assert 0 < bill.cost.so_far < (bill.cost.at_cap or 0) <= 1.0 and not bill.is_paid
        assert (bill.budget_usd, bill.life.idle and bill.life.idle.max_idle_s) == (1.0, 600)
        await sandbox.set_budget(5)
        await sandbox.keep_awake(timedelta(minutes=5), budget_usd=1)
        (kept,) = (await asyncio.to_thread(sbx.ok, "keep-awake", "--json")).json
        assert (kept["name"], kept["budget_usd"]) == ("seen", 1)
        assert (await sandbox.cost()).budget_usd == 5
        assert (await sandbox.let_sleep(), await sandbox.let_sleep()) == (True, False)
        await sandbox.set_budget(None)
        assert (await sandbox.cost()).budget_usd is None
        with pytest.raises(Conflict, match="no job runs"):
            await sandbox.keep_awake()
        for wrong in ({"since": datetime(2026, 1, 31)}, {"tail": -1}, {"source": "cloud"}, {"grep": "("}):  # noqa: DTZ001 - the point
            with pytest.raises(UsageError):
                await sandbox.logs(**wrong)
        with pytest.raises(UsageError):
            await sandbox.set_budget(float("nan"))


def test_importing_the_package_loads_next_to_nothing(sbx: Sbx) -> None:
    code = "import sys, sbxtui; print(sorted(name for name in sys.modules if name.startswith('sbxtui')))"
    assert run(sbx, "-c", code).out == "['sbxtui', 'sbxtui._version']"
    lazy = "import sys; from sbxtui import Sandbox; print({'boto3', 'httpx', 'textual', 'sqlite3'} & set(sys.modules))"
    assert run(sbx, "-c", lazy).out == "set()"
    assert run(sbx, "-c", "import sbxtui; sbxtui.nonsense").err.endswith(
        "AttributeError: module 'sbxtui' has no attribute 'nonsense'\n"
    )


def test_the_example_that_runs_code_says_hello(sbx: Sbx) -> None:
    done = run(sbx, str(ROOT / "examples" / "run_code.py"))
    assert (done.code, done.out) == (0, "Hello from a microVM!"), done.err
    assert names(sbx) == ["app"]


def test_the_example_that_serves_fastapi_serves_it_or_says_what_the_image_lacks(sbx: Sbx) -> None:
    done = run(sbx, str(ROOT / "examples" / "serve_fastapi.py"))
    answers = {0: '{"message":"Hello from FastAPI in a sandbox!"}', 1: "This image has no FastAPI"}
    assert done.out.startswith(answers[done.code]), done.err
    assert names(sbx) == ["app"]


async def test_an_error_of_the_caller_outlives_a_sandbox_that_somebody_else_removed(sbx: Sbx) -> None:
    with pytest.raises(ZeroDivisionError):
        async with await Sandbox.create("taken", memory=512):
            await asyncio.to_thread(sbx.ok, "rm", "taken", "--yes")
            raise ZeroDivisionError
    async with await Sandbox.create("taken", memory=512):
        await asyncio.to_thread(sbx.ok, "rm", "taken", "--yes")


async def test_a_folder_is_synced_reviewed_and_taken_back_from_a_program(sbx: Sbx, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("here")
    async with await Sandbox.attach("app") as sandbox:
        assert await sandbox.sync_status() is None
        with pytest.raises(UsageError, match="mode `sideways`"):
            await sandbox.sync(tmp_path, mode="sideways")
        once = await sandbox.sync(tmp_path, to="synced")
        assert (once.pushed, once.sent_bytes, once.is_equal) == (1, 4, True)
        assert await sandbox.read_file("synced/mine") == b"here"
        await sandbox.keep_synced(tmp_path, to="synced")
        (tmp_path / "mine").write_text("edited")
        assert (await sandbox.exec("cat", ["synced/mine"])).stdout_text == "edited"
        await sandbox.exec("sh", ["-c", "echo agent > synced/theirs && echo two >> synced/mine"])
        found = await sandbox.sync_changes()
        assert {os.fsdecode(one.path): one.word for one in found.items} == {"mine": "edited", "theirs": "new"}
        [mine] = [one for one in found.items if one.path == b"mine"]
        assert "+editedtwo\n" in await sandbox.sync_diff(mine)
        assert (await sandbox.pull(found, [mine])).done == 1
        assert (tmp_path / "mine").read_text() == "editedtwo\n" and not (tmp_path / "theirs").exists()
        taken_back = await sandbox.undo_sync()
        assert taken_back is not None and taken_back.done == 1
        assert (tmp_path / "mine").read_text() == "edited"
        assert (await sandbox.reject(found.items)).failed == ()
        assert await sandbox.read_file("synced/mine") == b"edited"
        await sandbox.pause_sync()
        await sandbox.resume_sync()
        await sandbox.flush_sync()
        view = await sandbox.sync_status()
        assert view is not None and view.is_detached and view.root == os.path.realpath(tmp_path)
        await sandbox.stop_sync()
        assert await sandbox.sync_status() is None


async def test_a_port_is_forwarded_from_a_program_and_goes_on_without_it(sbx: Sbx) -> None:
    sbx.ok("exec", "--detach", "app", "--", "python3", "-m", "http.server", "7100", "--bind", "127.0.0.1")
    async with await Sandbox.attach("app") as sandbox:
        async with asyncio.timeout(60):
            while 7100 not in [one.port for one in await sandbox.ports()]:
                await asyncio.sleep(0.1)
        forward = await sandbox.forward(7100, local_port=0)
        assert forward.url == f"http://app-7100.localhost:{forward.local_port}"
        with pytest.raises(UsageError):
            await sandbox.forward(8080)
        with pytest.raises(UsageError):
            await sandbox.forward(7100, mode="udp")
    reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await reader.readline()).endswith(b" 200 OK\r\n")
    writer.close()
    async with await Sandbox.attach("app") as sandbox:
        assert [one.local_port for one in await sandbox.forwards()] == [forward.local_port]
        await sandbox.stop_forward(forward.local_port)
        assert await sandbox.forwards() == []


async def test_secrets_forks_and_snapshots_are_those_of_the_command_line(sbx: Sbx) -> None:
    async with await Sandbox.attach("app") as sandbox:
        await sandbox.write_file("kept", "1")
        with pytest.raises(Conflict):
            await sandbox.set_secret("TOKEN", "value-of-it", ["example.com"])
        assert (await sandbox.snapshot("then")).name == "then"
        async with await sandbox.fork("twin", network="allow=example.com:443", env={"MORE": "1"}) as twin:
            state = await twin.set_secret("TOKEN", "value-of-it", ["example.com"])
            told = await twin.exec("sh", ["-c", "cat kept; printenv MORE TOKEN"])
            assert told.stdout_text.split() == ["11", state.placeholder] and "value-of-it" not in state.placeholder
            assert sbx.ok("secret", "ls", "twin", "--quiet").out == "TOKEN"
            await twin.remove_secret("TOKEN")
            assert await twin.secrets() == []
    blocking = await asyncio.to_thread(SyncSandbox.attach, "app")
    with blocking, SyncSandbox.restore("then", "again") as again, again.fork("third") as third:
        assert (again.read_file("kept"), third.read_file("kept")) == (b"1", b"1")
        assert {"again", "third"} <= set(names(sbx))
        assert [one.name for one in blocking.snapshots()] == ["then"]
        blocking.remove_snapshot("then")
    assert not {"twin", "again", "third"} & set(names(sbx))
