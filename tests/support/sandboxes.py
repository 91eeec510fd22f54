"""Real sandboxes for tests: a keeper, a runtime and the guest, all ended with the test."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sbxtui.core.errors import RuntimeUnavailable, SbxError
from sbxtui.localcloud.keeper_client import KeeperClient, start_keeper
from sbxtui.localcloud.keeper_processes import pids_called
from sbxtui.localcloud.keeper_sweep import sweep
from sbxtui.localcloud.runtimes.choose import choose_runtime
from sbxtui.localcloud.runtimes.gvisor_choice import digest_of, settle
from sbxtui.localcloud.runtimes.own_root_probe import own_root
from sbxtui.localcloud.spec import SandboxSpec

CALL_S = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that any uid can traverse, with short paths for sockets; guest copies are shared by all tests of a
    run.
    """

    root: Path
    images_dir: Path

    def sweep(self) -> list[str]:
        """Clean up after killed keepers; returns the ids of their sandboxes."""
        return sweep(self.root / "t", self.root / "s")

    def spec(self, sandbox_id: str = "one", runtime: str = "bubblewrap", **changes: Any) -> SandboxSpec:
        """A small sandbox."""
        spec = SandboxSpec(
            sandbox_id=sandbox_id,
            image_name="sbx-base",
            memory_mib=256,
            vcpus=1,
            disk_mib=128,
            pids_max=64,
            tmpfs_mib=64,
            sandbox_dir=self.root / "t" / sandbox_id,
            control_dir=self.root / "s" / sandbox_id,
            keeper_socket=self.root / "s" / f"{sandbox_id}.keeper",
            runtime=runtime,
            images_dir=self.images_dir,
        )
        return replace(spec, **changes)


@contextmanager
def make_place(images_dir: Path) -> Iterator[Place]:
    """A place that is gone afterwards, with whatever keepers a failed test left."""
    root = Path(tempfile.mkdtemp(prefix="sbx-", dir="/tmp"))
    root.chmod(0o711)
    place = Place(root, images_dir)
    try:
        yield place
    finally:
        asyncio.run(_end_all(place))
        place.sweep()
        shutil.rmtree(root)


async def _end_all(place: Place) -> None:
    for socket_file in (place.root / "s").glob("*.keeper"):
        name = socket_file.name.removesuffix(".keeper")
        with contextlib.suppress(SbxError):
            await KeeperClient(socket_file, place.root / "s" / name, place.root / "t" / name).terminate(0)


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished job. `code` is 128+n when a signal ended it."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class RunningSandbox:
    """A sandbox whose guest answers."""

    spec: SandboxSpec
    keeper: KeeperClient

    async def request(self, method: str, path: str, body: object = None, *, boot: str = "") -> tuple[int, bytes]:
        """One HTTP exchange with the guest over the bridge."""
        async with asyncio.timeout(CALL_S):
            reader, writer = await (await self.keeper.dial(self.spec.agent_port)).streams()
            content = b"" if body is None else json.dumps(body).encode()
            head = f"{method} {path} HTTP/1.1\r\nHost: guest\r\nX-Sbx-Boot: {boot}\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
            reply = await reader.read()
            writer.close()
        status, _, rest = reply.partition(b"\r\n\r\n")
        return int(status.split(b" ", 2)[1]), rest

    async def hello(self) -> dict[str, Any]:
        """What the guest says of itself."""
        return dict(json.loads((await self.request("GET", "/v2/hello"))[1]))

    async def is_healthy(self) -> bool:
        """Whether the guest answers its health check now."""
        with contextlib.suppress(SbxError, OSError, ValueError, IndexError):
            return (await self.request("GET", "/healthz"))[0] == 200
        return False

    async def run(self, shell: str, *, env: Mapping[str, str] | None = None) -> Ran:
        """Run a shell line to its end."""
        boot = (await self.hello())["boot_id"]
        order = {"id": uuid.uuid4().hex, "shell": shell, "env": dict(env or {})}
        status, reply = await self.request("POST", "/v2/jobs?wait_s=25", order, boot=boot)
        job = json.loads(reply)
        if status not in (200, 201) or job["exit"] is None:
            raise AssertionError(f"the job did not end: {reply[:400]!r}")
        code = job["exit"]["code"]
        out, err = (base64.b64decode(job["output"][name]).decode(errors="replace") for name in ("stdout", "stderr"))
        return Ran(code if code is not None else 128 + job["exit"]["signal"], out, err)


@asynccontextmanager
async def running(spec: SandboxSpec) -> AsyncIterator[RunningSandbox]:
    """Start a sandbox and end it with everything in it."""
    keeper = await start_keeper(spec)
    try:
        yield RunningSandbox(spec, keeper)
    finally:
        await keeper.terminate(0)


def require_runtime(runtime: str, images_dir: Path) -> None:
    """Skip the calling test, saying why, where a runtime does not work."""
    try:
        choose_runtime(runtime, images_dir)
    except RuntimeUnavailable as exc:
        pytest.skip(f"uid {os.geteuid()}: {exc.message}")


def require_own_root(images_dir: Path) -> None:
    """Skip the calling test, saying why, where sandboxes in namespaces have no root that can be written."""
    require_runtime("bubblewrap", images_dir)
    if problem := own_root(images_dir).problem:
        pytest.skip(f"uid {os.geteuid()}: no root of its own: {problem}")


def point_to_runsc(images_dir: Path) -> None:
    """Let the sandboxes of these images find the runsc that was set up for this run, if one was."""
    if path := os.environ.get("SBX_TEST_RUNSC"):
        settle(images_dir, Path(path), "given to the tests", digest_of(Path(path)))


def processes_naming(text: str) -> list[int]:
    """Living processes whose command line holds `text`."""
    return [pid for pid in pids_called(lambda words: text.encode() in b"\0".join(words)) if pid != os.getpid()]
