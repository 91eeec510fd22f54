"""What every isolation runtime promises; a new one is added to RUNTIMES and passes as it is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable, RuntimeUnavailable, UsageError
from sbxtui.localcloud import cgroups
from sbxtui.localcloud.keeper_client import KeeperClient, adopt_keeper, start_keeper
from sbxtui.localcloud.keeper_processes import descendants
from sbxtui.localcloud.runtimes.choose import choose_runtime, find_runtime
from sbxtui.localcloud.spec import KeeperState, SandboxSpec, read_exit
from tests.support.sandboxes import Place, RunningSandbox, processes_naming, require_runtime, running

RUNTIMES = ("microvm", "gvisor", "bubblewrap", "process")


@pytest.fixture(params=RUNTIMES)
def spec(request: pytest.FixtureRequest, place: Place) -> SandboxSpec:
    """A sandbox of each runtime that works here."""
    require_runtime(request.param, place.images_dir)
    return place.spec(runtime=request.param)


def _left_of(spec: SandboxSpec) -> dict[str, object]:
    """Everything an ended sandbox must not leave: empty when clean."""
    groups = cgroups.names_in(cgroups.folder_of(spec.keeper_socket.parent))
    places = (str(spec.sandbox_dir), str(spec.control_dir))
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    left: dict[str, object] = {
        "processes": processes_naming(str(spec.sandbox_dir)),
        "mounts": [line for line in mounts if any(place in line for place in places)],
        "cgroups": groups & {spec.sandbox_id},
        "sockets": [p.name for p in spec.keeper_socket.parent.iterdir() if p.name.startswith(spec.sandbox_id)],
        "files": sorted({p.name for p in spec.sandbox_dir.iterdir()} - {"exit.json", "keeper.log"}),
    }
    return {key: value for key, value in left.items() if value}


async def test_the_guest_answers_and_tells_the_runtimes_own_words(spec: SandboxSpec) -> None:
    async with running(spec) as sandbox:
        hello = await sandbox.hello()
        status = await sandbox.keeper.status()
    assert hello["isolation"] == find_runtime(spec.runtime).isolation == status.isolation
    assert hello["limits"]["memory_mib"] == spec.memory_mib
    assert status.state is KeeperState.RUNNING


async def test_jobs_have_a_work_folder_a_temporary_folder_and_python(spec: SandboxSpec) -> None:
    async with running(spec) as sandbox:
        ran = await sandbox.run(
            "set -e; echo a > file; t=$(mktemp); echo b > $t; python3 -c 'print(6*7)'; pwd; cat file $t; rm $t"
        )
        workdir = (await sandbox.hello())["workdir"]
    assert (ran.code, ran.out.split()) == (0, ["42", workdir, "a", "b"]), ran


async def test_no_process_in_the_sandbox_tells_where_things_lie_on_the_host(place: Place) -> None:
    require_runtime("bubblewrap", place.images_dir)
    async with running(place.spec()) as sandbox:
        ran = await sandbox.run("tr '\\0' '\\n' < /proc/1/cmdline | head -n 1; cat /proc/*/cmdline | tr '\\0' ' '")
    assert ran.out.splitlines()[0] == "bwrap"
    assert str(place.root) not in ran.out


async def test_jobs_have_a_home_of_their_own_where_there_is_isolation(place: Place) -> None:
    require_runtime("bubblewrap", place.images_dir)
    async with running(place.spec()) as sandbox:
        ran = await sandbox.run("set -e; echo b > $HOME/file; echo $HOME; id -un; python -m venv --without-pip $HOME/v")
    assert (ran.code, ran.out.split()) == (0, ["/home/sandbox", "sandbox"]), ran


WATCHES_ITS_MEMORY = """
import os, time
def kib(name):
    return next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith(name + ":"))
print(kib("MemTotal"), os.environ["SBX_MEMORY_MIB"])
before = kib("MemAvailable")
held = b"x" * (64 << 20)
while kib("MemAvailable") > before - 60_000:
    time.sleep(0.05)
open("/proc/meminfo", "w")
"""


@pytest.mark.parametrize("runtime", ["gvisor", "bubblewrap"])
async def test_a_sandbox_sees_its_own_memory_and_disk_and_what_is_left_of_them(runtime: str, place: Place) -> None:
    require_runtime(runtime, place.images_dir)
    spec = place.spec(runtime=runtime)
    async with running(spec) as sandbox:
        ran = await sandbox.run('python3 -c "$WATCHER"', env={"WATCHER": WATCHES_ITS_MEMORY})
        system = await sandbox.run("ls -l / && . /etc/os-release && echo $ID && head -c 8M /dev/zero > file")
        async with asyncio.timeout(30):
            while (disk := json.loads((await sandbox.request("GET", "/v2/metrics"))[1])["disk"])[
                "used_bytes"
            ] < 8 << 20:
                await asyncio.sleep(0.1)
    assert ran.out.split() == [str(spec.memory_mib << 10), str(spec.memory_mib)]
    assert "OSError" in ran.err or "PermissionError" in ran.err, ran.err
    assert (system.code, system.err) == (0, "") and system.out.splitlines()[-1], system
    assert disk["limit_bytes"] == spec.disk_mib << 20 == disk["used_bytes"] + disk["free_bytes"]


async def _disk(sandbox: RunningSandbox) -> dict[str, int]:
    return dict(json.loads((await sandbox.request("GET", "/v2/metrics"))[1])["disk"])


async def test_the_environment_of_the_host_does_not_get_in(spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-of-the-host")
    monkeypatch.setenv("EDITOR", "canary-of-the-host")
    async with running(spec) as sandbox:
        ran = await sandbox.run("env; cat /proc/1/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'")
        keeper_env = Path(f"/proc/{(await sandbox.keeper.status()).pid}/environ").read_bytes()
    assert ran.code == 0
    if spec.runtime != "process":
        assert "canary-of-the-host" not in ran.out
    assert b"canary-of-the-host" not in keeper_env


async def test_several_sandboxes_use_the_same_port_numbers_and_never_meet(spec: SandboxSpec, place: Place) -> None:
    other = place.spec("two", runtime=spec.runtime)
    async with running(spec) as first, running(other) as second:
        await first.run("echo mine > mark")
        ran = await second.run("cat mark")
        boots = {(await sandbox.hello())["boot_id"] for sandbox in (first, second)}
    assert ran.code != 0
    assert len(boots) == 2


async def test_a_port_opened_inside_is_reached_and_a_closed_one_refuses(spec: SandboxSpec) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); s.accept()[0].sendall(b'hi')"
    )
    async with running(spec) as sandbox:
        ran = await sandbox.run(f'setsid python3 -c "{server}" > port 2>&1 & while ! [ -s port ]; do :; done; cat port')
        reader, writer = await (await sandbox.keeper.dial(int(ran.out))).streams()
        async with asyncio.timeout(5):
            assert await reader.read() == b"hi"
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await sandbox.keeper.dial(1)


async def test_a_frozen_sandbox_answers_nothing_and_goes_on_after_thaw(spec: SandboxSpec) -> None:
    async with running(spec) as sandbox:
        boot = (await sandbox.hello())["boot_id"]
        await sandbox.keeper.freeze()
        await sandbox.keeper.freeze()
        assert (await sandbox.keeper.status()).state is KeeperState.FROZEN
        with pytest.raises((TimeoutError, GuestUnreachable)):
            async with asyncio.timeout(0.5):
                await sandbox.request("GET", "/healthz")
        await sandbox.keeper.thaw()
        assert (await sandbox.hello())["boot_id"] == boot


async def test_thaw_leaves_a_job_stopped_that_its_owner_had_stopped(spec: SandboxSpec) -> None:
    stopped = "setsid sh -c 'echo $$ > pid; kill -STOP $$; echo woken > woken' > /dev/null 2>&1 &"
    async with running(spec) as sandbox:
        ran = await sandbox.run(f"{stopped} while ! [ -s pid ]; do :; done")
        assert ran.code == 0
        await sandbox.keeper.freeze()
        await sandbox.keeper.thaw()
        ran = await sandbox.run("grep State /proc/$(cat pid)/status; ls")
    assert "stopped" in ran.out
    assert "woken" not in ran.out


async def test_a_program_is_told_that_its_terminal_has_a_new_size(spec: SandboxSpec) -> None:
    order = {"id": "r", "shell": "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done"}
    async with running(spec) as sandbox:
        boot = (await sandbox.hello())["boot_id"]
        tty = {"cols": 40, "rows": 10, "term": "xterm"}
        assert (await sandbox.request("POST", "/v2/jobs", {**order, "tty": tty}, boot=boot))[0] == 201
        async with asyncio.timeout(20):
            await _until_said(sandbox, boot, b"up")
            await sandbox.request("POST", "/v2/jobs/r/resize", {"cols": 77, "rows": 22}, boot=boot)
            await _until_said(sandbox, boot, b"22 77")


async def _until_said(sandbox: RunningSandbox, boot: str, words: bytes) -> None:
    while words not in (await sandbox.request("GET", "/v2/jobs/r/log", boot=boot))[1]:
        await asyncio.sleep(0.02)


async def test_terminate_leaves_nothing_but_the_record_of_the_end(spec: SandboxSpec) -> None:
    async with running(spec) as sandbox:
        await sandbox.run("mkdir -p deep/er; chmod 0 deep; ln -s / link; setsid sleep 1000 > /dev/null 2>&1 &")
        ended = await sandbox.keeper.terminate(5)
    assert (ended.exit_code, ended.signal, ended.reason) == (0, 0, "terminated")
    assert read_exit(spec.sandbox_dir) == ended
    assert _left_of(spec) == {}
    assert (await sandbox.keeper.status()).state is KeeperState.EXITED
    assert await sandbox.keeper.wait_exit() == ended


async def test_a_frozen_sandbox_can_be_terminated(spec: SandboxSpec) -> None:
    async with running(spec) as sandbox:
        await sandbox.keeper.freeze()
        assert (await sandbox.keeper.terminate(0)).reason == "terminated"
    assert _left_of(spec) == {}


async def test_the_guests_own_end_is_recorded(spec: SandboxSpec) -> None:
    async with running(spec) as sandbox:
        waiting = asyncio.create_task(sandbox.keeper.wait_exit())
        os.kill(await _boot_pid(sandbox.keeper), signal.SIGKILL)
        async with asyncio.timeout(10):
            ended = await waiting
    assert (ended.exit_code, ended.signal, ended.reason) == (137, 9, "exited")
    assert _left_of(spec) == {}


async def _boot_pid(keeper: KeeperClient) -> int:
    below = descendants((await keeper.status()).pid)
    return next(pid for pid in sorted(below) if _is_boot(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")))


def _is_boot(words: list[bytes]) -> bool:
    """The guest's first process, or the kernel of its own it runs on."""
    return b"sbxboot.py" in b"".join(words[4:5]) or words[0] == b"runsc-sandbox"


async def test_a_killed_keeper_takes_its_sandbox_along_and_a_sweep_takes_the_rest(
    spec: SandboxSpec, place: Place
) -> None:
    async with running(spec) as sandbox:
        await sandbox.run("setsid sleep 1000 > /dev/null 2>&1 &")
        os.kill((await sandbox.keeper.status()).pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            while processes_naming(str(spec.sandbox_dir)) or await sandbox.is_healthy():
                await asyncio.sleep(0.02)
        assert await adopt_keeper(spec.keeper_socket) is None
        assert place.sweep() == [spec.sandbox_id]
        ended = await sandbox.keeper.wait_exit()
    assert ended.reason == "keeper-died"
    assert _left_of(spec) == {}


async def test_a_sweep_ends_what_outlived_a_keeper_and_its_guard(spec: SandboxSpec, place: Place) -> None:
    async with running(spec) as sandbox:
        await sandbox.run("setsid sleep 1000 > /dev/null 2>&1 &")
        for pid in (await _boot_pid(sandbox.keeper), *processes_naming(str(spec.spec_file))):
            os.kill(pid, signal.SIGSTOP)
        for pid in processes_naming(str(spec.spec_file)):
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while place.sweep() != [spec.sandbox_id]:
                await asyncio.sleep(0.02)
            while processes_naming(str(spec.sandbox_dir)) or processes_naming(str(spec.kernel_dir)):
                await asyncio.sleep(0.02)
    assert _left_of(spec) == {}


async def test_a_sweep_leaves_living_keepers_alone(spec: SandboxSpec, place: Place) -> None:
    async with running(spec) as sandbox:
        assert place.sweep() == []
        assert await sandbox.is_healthy()


async def test_a_keeper_outlives_who_started_it_and_is_adopted(spec: SandboxSpec) -> None:
    starter = (
        "import asyncio, os, sys; from sbxtui.localcloud.keeper_client import start_keeper\n"
        "from sbxtui.localcloud.spec import SandboxSpec\n"
        "asyncio.run(start_keeper(SandboxSpec.from_json(sys.argv[1]))); os.kill(os.getpid(), 9)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", starter, spec.to_json())
    assert await process.wait() == -signal.SIGKILL
    keeper = await adopt_keeper(spec.keeper_socket)
    assert keeper is not None
    assert await RunningSandbox(spec, keeper).is_healthy()
    await keeper.terminate(0)
    assert _left_of(spec) == {}


async def test_there_are_never_two_keepers_for_one_sandbox(spec: SandboxSpec) -> None:
    async with running(spec) as sandbox:
        with pytest.raises(RuntimeUnavailable, match="has a keeper already"):
            await start_keeper(spec)
        assert await sandbox.is_healthy()


async def test_a_guest_that_cannot_start_is_an_error_with_its_own_words(spec: SandboxSpec, place: Place) -> None:
    broken = place.spec("broken", runtime=spec.runtime, env={"AGENTD_BIND": "192.0.2.1"})
    with pytest.raises(RuntimeUnavailable, match="exit code 1") as caught:
        await start_keeper(broken)
    assert "cannot listen" in str(caught.value.details["log_tail"])
    assert _left_of(broken) == {}
    ended = read_exit(broken.sandbox_dir)
    assert ended is not None and ended.reason == "start-failed"


async def test_an_unknown_runtime_is_refused_and_starts_nothing(place: Place) -> None:
    with pytest.raises(UsageError, match="names no isolation"):
        await start_keeper(place.spec(runtime="docker"))
    assert not (place.root / "t").exists()


def test_no_isolation_is_never_chosen_unless_it_is_named(place: Place) -> None:
    try:
        chosen = choose_runtime("", place.images_dir).runtime.id
    except RuntimeUnavailable as exc:
        pytest.skip(exc.message)
    assert chosen != "process"
    assert choose_runtime("process", place.images_dir).runtime.isolation == "process — NOT isolated"


async def test_the_guests_own_output_is_logged_and_json_status_survives(spec: SandboxSpec) -> None:
    async with running(spec) as sandbox:
        status = await sandbox.keeper.status()
        log = spec.log_file.read_text()
    assert "listening on port" in log
    assert json.loads(json.dumps(status.to_dict()))["runtime"] == spec.runtime
