"""A copy of a sandbox goes on as another, and the first notices nothing; sandboxes of a kind start from one image."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sbxtui.core.errors import SbxError
from sbxtui.localcloud.copies import COPY_FOLDER, FILES, MEMORY, find_copy
from sbxtui.localcloud.golden import PREFIX, shelve
from sbxtui.localcloud.hooks import call_hook
from sbxtui.localcloud.keeper_client import KeeperClient, prepare, start_keeper
from sbxtui.localcloud.keeper_save import find_saved
from sbxtui.localcloud.spec import KeeperState, SandboxSpec, write_private
from tests.support.sandboxes import Place, RunningSandbox, require_runtime, running

pytestmark = pytest.mark.long

TICKER = "(while :; do date +%s >> ticks; sleep 0.1; done) > /dev/null 2>&1 &"
GOES_ON = "n=$(wc -l < ticks); while [ $(wc -l < ticks) -le $n ]; do sleep 0.1; done; echo on"
# Whatever tells one machine from another.
OWN = "cat /proc/sys/kernel/random/boot_id; head -c 8 /dev/urandom | od -An -tx1; hostname; cat /etc/hostname"


@pytest.fixture(params=("gvisor", "bubblewrap"))
def spec(request: pytest.FixtureRequest, place: Place) -> SandboxSpec:
    """A sandbox of each runtime that isolates."""
    require_runtime(request.param, place.images_dir)
    return place.spec(runtime=request.param, hostname="first", env={"SBX_HOOKS": "1"})


@asynccontextmanager
async def named(spec: SandboxSpec) -> AsyncIterator[RunningSandbox]:
    """A sandbox that was told who it is."""
    async with running(spec) as sandbox:
        payload = {"microvmId": spec.sandbox_id, "runHookPayload": json.dumps({"name": spec.hostname})}
        outcome = await call_hook(sandbox.keeper.dial, spec.hook_port, "run", timeout_s=60, payload=payload)
        assert outcome.is_ok
        yield sandbox


def _second(spec: SandboxSpec, place: Place) -> SandboxSpec:
    return place.spec("two", runtime=spec.runtime, hostname="second", env=spec.env)


async def test_a_copy_goes_on_as_another_sandbox_and_the_first_as_itself(spec: SandboxSpec, place: Place) -> None:
    second = _second(spec, place)
    async with named(spec) as first:
        assert (await first.request("PUT", "/v2/launch", {"env": {"KEPT": "1"}}))[0] == 200
        secrets = {"env": {"TOKEN": "placeholder"}, "defaults": {}}
        assert (await first.request("PUT", "/v2/secrets", secrets))[0] == 200
        assert (await first.run(f"echo kept > file; echo kept > /tmp/file; {TICKER}")).code == 0
        before, own = await first.hello(), (await first.run(OWN)).out
        kind = await first.keeper.copy(second.sandbox_dir / COPY_FOLDER)
        assert (await first.hello()) | {"now": ""} == before | {"now": ""}
        assert (await first.run(f"{GOES_ON}; echo $TOKEN")).out == "on\nplaceholder\n"
        async with named(second) as copied:
            hello, its_own = await copied.hello(), (await copied.run(OWN)).out
            ran = await copied.run("cat file; echo $KEPT-$TOKEN-; cat /tmp/file; date +%s")
            if kind == MEMORY:
                assert (await copied.run(GOES_ON)).out == "on\n"
        assert (await first.run(GOES_ON)).out == "on\n"
    lines = ran.out.splitlines()
    assert kind == (MEMORY if spec.runtime == "gvisor" else FILES)
    assert lines[:-1] == (["kept", "1--", "kept"] if kind == MEMORY else ["kept", "--"])
    assert abs(int(lines[-1]) - time.time()) < 60
    assert (hello["sandbox"]["id"], hello["sandbox"]["name"]) == ("two", "second")
    assert hello["boot_id"] != before["boot_id"]
    boot_id, numbers, *names = own.splitlines()
    its_boot_id, its_numbers, *its_names = its_own.splitlines()
    assert names == ["first"] * 2 and its_names == ["second"] * 2
    assert numbers != its_numbers
    # Where the kernel is the host's, so is this.
    assert (boot_id != its_boot_id) == (kind == MEMORY)
    assert not (second.sandbox_dir / COPY_FOLDER).exists()


async def test_a_sleeping_one_is_copied_and_sleeps_on(spec: SandboxSpec, place: Place) -> None:
    second = _second(spec, place)
    async with named(spec) as first:
        assert (await first.run("echo kept > file; ln -s /etc/passwd link; mkdir -p a/b; chmod 0 a/b")).code == 0
        await first.keeper.freeze()
        await first.keeper.copy(second.sandbox_dir / COPY_FOLDER)
        assert (await first.keeper.status()).state is KeeperState.FROZEN
        async with named(second) as copied:
            assert (await copied.run("cat file; readlink link; stat -c %a a/b")).out == "kept\n/etc/passwd\n0\n"
        await first.keeper.thaw()
        assert (await first.run("cat file")).out == "kept\n"


async def test_a_copy_that_cannot_be_written_is_an_error_and_nobody_notices(spec: SandboxSpec) -> None:
    async with named(spec) as first:
        before = (await first.hello())["boot_id"]
        with pytest.raises(SbxError, match="copying failed"):
            await first.keeper.copy(Path("/proc/nowhere/copied"))
        assert (await first.hello())["boot_id"] == before
        assert not list(first.spec.sandbox_dir.glob("**/.copied.part"))


async def test_a_keeper_that_is_killed_while_it_copies_leaves_a_sandbox_that_sleeps(place: Place) -> None:
    require_runtime("gvisor", place.images_dir)
    spec = await asyncio.to_thread(prepare, place.spec(runtime="gvisor"))
    spec.sandbox_dir.mkdir(parents=True)
    write_private(spec.spec_file, spec.to_json())
    command = [sys.executable, "-m", "tests.support.killed_at", "sbxtui.localcloud.keeper_save:copy_sleeping:before"]
    subprocess.run([*command, "sbxtui.localcloud.keeper", str(spec.spec_file)], check=True, env={"PATH": os.defpath})
    first = RunningSandbox(spec, KeeperClient(spec.keeper_socket, spec.control_dir, spec.sandbox_dir))
    async with asyncio.timeout(60):
        while not await first.is_healthy():
            await asyncio.sleep(0.02)
    assert (await first.run("echo kept > file")).code == 0
    with pytest.raises(SbxError):
        await first.keeper.copy(place.root / "copied")
    assert find_copy(place.root / "copied") is None
    woken = await _woken(spec, place)
    assert (await woken.run("cat file")).out == "kept\n"


async def _woken(spec: SandboxSpec, place: Place) -> RunningSandbox:
    async with asyncio.timeout(60):
        while True:
            try:
                await asyncio.to_thread(place.sweep)
                return RunningSandbox(spec, await start_keeper(spec))
            except SbxError:
                # The killed one's lock is held until it is gone.
                await asyncio.sleep(0.05)


async def test_sandboxes_of_a_kind_start_from_one_image_and_share_nothing_that_is_their_own(place: Place) -> None:
    require_runtime("gvisor", place.images_dir)
    first = place.spec("one", runtime="gvisor", memory_mib=320, hostname="first", env={"SBX_HOOKS": "1"})
    async with running(first) as cold:
        status = await cold.keeper.status()
        assert status.begun_from == "cold" and status.golden_key
        await cold.keeper.freeze()
        saved = find_saved(first.sandbox_dir)
        assert saved is not None
        shelve(saved, place.images_dir, status.golden_key)
    image = place.images_dir / f"{PREFIX}{status.golden_key}"
    second, third = (replace(place.spec(name, runtime="gvisor"), memory_mib=320, env=first.env) for name in ("2", "3"))
    async with named(replace(second, hostname="second")) as one, named(replace(third, hostname="third")) as other:
        assert [(await each.keeper.status()).begun_from for each in (one, other)] == ["golden"] * 2
        told = [((await each.hello())["boot_id"], *(await each.run(OWN)).out.split("\n")) for each in (one, other)]
        assert all(mine != its for mine, its in zip(*told, strict=True) if mine)
        assert [line[3:5] for line in told] == [("second",) * 2, ("third",) * 2]
    # A changed size is another kind; an image that is damaged is tried once.
    async with running(place.spec("4", runtime="gvisor", memory_mib=321, env=first.env)) as another:
        assert (await another.keeper.status()).begun_from == "cold"
    for file in image.glob("*.img"):
        file.chmod(0o600)
        file.write_bytes(b"damaged")
    async with running(replace(second, sandbox_id="5")) as saved_by_a_cold_start:
        assert (await saved_by_a_cold_start.keeper.status()).begun_from == "cold"
        assert re.search("golden image does not start", saved_by_a_cold_start.spec.log_file.read_text())
    assert not image.exists()
