"""A sandbox with a kernel of its own is suspended to disk: its memory is free, and it survives what ends processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from sbxtui.localcloud.keeper_client import start_keeper
from sbxtui.localcloud.keeper_processes import descendants
from sbxtui.localcloud.spec import KeeperState, SandboxSpec, read_exit
from tests.support.sandboxes import Place, RunningSandbox, require_runtime, running

TICKER = "(while :; do date +%s >> ticks; sleep 0.1; done) > /dev/null 2>&1 &"


@pytest.fixture
async def asleep(place: Place) -> AsyncIterator[RunningSandbox]:
    """A suspended sandbox with a file, a file in memory, and a process that ticks."""
    require_runtime("gvisor", place.images_dir)
    async with running(place.spec(runtime="gvisor")) as sandbox:
        ran = await sandbox.run(f"echo kept > file; echo kept > /tmp/file; {TICKER} echo $!")
        assert ran.code == 0
        await sandbox.keeper.freeze()
        yield sandbox


async def test_nothing_of_it_runs_while_it_sleeps_and_all_goes_on_after(asleep: RunningSandbox) -> None:
    status = await asleep.keeper.status()
    assert status.state is KeeperState.FROZEN
    assert descendants(status.pid) == {}
    await asleep.keeper.thaw()
    ran = await asleep.run(
        "cat file /tmp/file; n=$(wc -l < ticks); while [ $(wc -l < ticks) -le $n ]; do sleep 0.1; done"
    )
    assert (ran.code, ran.out) == (0, "kept\nkept\n"), ran
    assert not (asleep.spec.sandbox_dir / "saved").exists()


async def test_it_can_sleep_again_and_again(asleep: RunningSandbox) -> None:
    for _ in range(2):
        await asleep.keeper.thaw()
        await asleep.keeper.freeze()
    await asleep.keeper.thaw()
    assert (await asleep.run("cat file")).out == "kept\n"


async def test_boot_and_identity_are_the_same_after_a_restore_so_that_who_follows_a_job_goes_on(place: Place) -> None:
    require_runtime("gvisor", place.images_dir)
    async with running(place.spec(runtime="gvisor", env={"SBX_HOOKS": "1"})) as sandbox:
        await _hook(sandbox, "run")
        before = await sandbox.hello()
        await sandbox.keeper.freeze()
        await sandbox.keeper.thaw()
        await _hook(sandbox, "resume")
        after = await sandbox.hello()
    assert before["boot_id"] == after["boot_id"]
    assert before["sandbox"] == after["sandbox"]


async def test_it_survives_the_end_of_every_process_and_goes_on_under_a_new_keeper(
    asleep: RunningSandbox, place: Place
) -> None:
    os.kill((await asleep.keeper.status()).pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while asleep.spec.keeper_socket.exists() and asleep.spec.sandbox_id not in place.sweep():
            if await _is_keeper_gone(asleep.spec):
                break
            await asyncio.sleep(0.02)
    place.sweep()
    assert read_exit(asleep.spec.sandbox_dir) is None
    keeper = await start_keeper(asleep.spec)
    ran = await RunningSandbox(asleep.spec, keeper).run("cat file /tmp/file")
    assert ran.out == "kept\nkept\n"


async def test_a_sleeping_sandbox_that_is_ended_leaves_nothing(asleep: RunningSandbox) -> None:
    assert (await asleep.keeper.terminate(0)).reason == "terminated"
    left = {path.name for path in asleep.spec.sandbox_dir.iterdir()}
    assert left <= {"exit.json", "keeper.log"}


async def _hook(sandbox: RunningSandbox, name: str) -> None:
    async with asyncio.timeout(20):
        reader, writer = await (await sandbox.keeper.dial(sandbox.spec.hook_port)).streams()
        head = f"POST /aws/lambda-microvms/runtime/v1/{name} HTTP/1.1\r\nHost: guest\r\n"
        writer.write(f"{head}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
        assert b" 200 " in await reader.readline()
        writer.close()


async def _is_keeper_gone(spec: SandboxSpec) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(spec.keeper_socket)
    except OSError:
        return True
    writer.close()
    return False
