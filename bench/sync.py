"""A folder kept equal with a sandbox's: first syncs against a tar pipe, saves, and what rest costs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

from bench.guest import peak_rss_bytes, running_guest
from bench.support import SBX, Row, bench_home, milliseconds, ratio_row, run_child
from sbxtui.core.model import Context, ContextKind, ContextName, EndpointToken, SandboxId, SandboxRecord, SandboxState
from sbxtui.guest.client import GuestClient
from sbxtui.services.sync.cycle import Cycle
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.link import LiveLink
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.pair import Pair
from sbxtui.services.sync.status import LinkState
from sbxtui.services.sync.watch import EVERYTHING
from sbxtui.settings import load
from sbxtui.store.ancestors import Ancestors
from sbxtui.store.tokens import Tokens
from sbxtui.wiring import Services

MIB = 2**20
_NAME = "app"
_SAVES = 100
_DEADLINE_S = 120.0
_IDLE_S = 10.0
_BEGUN_S = 10.0
_FAR = SandboxId("microvm-bench")


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder to sync: how many files, in folders of how many, each how long."""

    words: str
    files: int
    per_folder: int
    size_bytes: int

    def make(self, folder: Path) -> None:
        """Make it, of text as compressible as hexadecimal digits are."""
        numbers = random.Random(1)
        for number in range(self.files):
            parent = folder / f"d{number // self.per_folder // 20}" / f"e{number // self.per_folder}"
            parent.mkdir(parents=True, exist_ok=True)
            with (parent / f"f{number}").open("wb") as file:
                for start in range(0, self.size_bytes, MIB):
                    file.write(numbers.randbytes(min(MIB, self.size_bytes - start) // 2).hex().encode())


SOURCE = Tree("2,000 files, 30 MB", 2_000, 8, 15_000)
SMALL = Tree("20,000 files of 2 kB", 20_000, 10, 2_000)
LARGE = Tree("one file of 500 MB", 1, 1, 500 * 10**6)


def run() -> list[Row]:
    """Whole commands on a guest of our own; then a link in this process."""
    rows = [row for tree in (SOURCE, SMALL, LARGE) for row in _first_sync(tree)]
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as name:
        return rows + asyncio.run(_alive(Path(name)))


def _first_sync(tree: Tree) -> list[Row]:
    with bench_home() as home, tempfile.TemporaryDirectory(prefix="sbx-bench-") as name:
        folder = Path(name)
        source = folder / "h" / "source"
        source.mkdir(parents=True)
        tree.make(source)
        with running_guest(folder) as (port, server_pid):
            env = {**home.env, "SBX_CONTEXT": "bench"}
            _know(home.folder, env, port)
            before = peak_rss_bytes(server_pid)
            ours = run_child([*SBX, "sync", _NAME, str(source), "--once"], env=env)
            grown_mib = (peak_rss_bytes(server_pid) - before) / MIB
            piped_s = _piped(source, env)
            rows = [
                ratio_row(f"first sync, {tree.words}", ours.duration_s, piped_s, "tar c | sbx exec -i tar x"),
                (
                    f"its memory, {tree.words}",
                    f"{ours.peak_rss_bytes / MIB:.0f} MiB, the guest {grown_mib:.0f} MiB more",
                    "the guest at most 64 MiB more",
                ),
            ]
            if tree is SOURCE:
                seeded_s = _seeded(source, port)
                rows.append(
                    ratio_row(f"the same, {tree.words}", ours.duration_s, seeded_s, "JSON and base64, one by one")
                )
            return rows


def _know(home: Path, env: Mapping[str, str], port: int) -> None:
    """Give the home a context with the guest as its sandbox, whose token is never asked for anew."""
    services = Services(load({"SBX_HOME": env["SBX_HOME"]}, cwd=home), actor="bench", context_name="bench")
    now = datetime.now(UTC)
    try:
        services.contexts.add(Context(ContextName("bench"), ContextKind.AWS, region="us-east-1"))
        Tokens(services.store).put("bench", EndpointToken(_FAR, (8080,), "any", now, now + timedelta(hours=1)))
        image = "arn:aws:lambda:us-east-1:1:microvm-image:x"
        record = SandboxRecord(_FAR, SandboxState.RUNNING, f"http://127.0.0.1:{port}", image, "1", now, 0)
        services.registry.adopt("bench", _NAME, record, actor="bench")
    finally:
        services.close()


def _piped(source: Path, env: Mapping[str, str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(["tar", "c", "-C", source, "."], stdout=subprocess.PIPE) as packing:
        unpack = [*SBX, "exec", "--no-flush", "--stdin", _NAME, "--", "sh", "-c", "mkdir ../tar && tar x -C ../tar"]
        subprocess.run(unpack, stdin=packing.stdout, env=env, check=True, timeout=_DEADLINE_S)
    return time.perf_counter() - began


def _seeded(source: Path, port: int) -> float:
    """As the seed did it: a document for each file."""
    connection = HTTPConnection("127.0.0.1", port)
    began = time.perf_counter()
    for path in source.rglob("*"):
        if path.is_file():
            content = base64.b64encode(path.read_bytes()).decode()
            body = json.dumps({"path": f"../seed/{path.relative_to(source)}", "content": content, "encoding": "base64"})
            connection.request("POST", "/v1/fs/write", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            if answer.status >= 300:
                raise RuntimeError(answer.read().decode())
            answer.read()
    connection.close()
    return time.perf_counter() - began


async def _alive(folder: Path) -> list[Row]:
    source, there = folder / "h" / "source", folder / "work"
    source.mkdir(parents=True)
    SMALL.make(source)
    with running_guest(folder) as (port, _):
        async with _linked(folder, source, port) as pair:
            await Cycle(pair).compare()
            # What is as young as this proves nothing.
            await asyncio.sleep(2.5)
            rows = [await _rescan(pair, source)]
            link = LiveLink(pair)
            running = asyncio.create_task(link.run())
            try:
                await _until(lambda: link.status.state is LinkState.WATCHING)
                rows += [await _saves(source, there), await _idle()]
            finally:
                link.stop()
                await running
            return rows


@asynccontextmanager
async def _linked(folder: Path, source: Path, port: int) -> AsyncIterator[Pair]:
    here = Folder(os.fspath(source))
    ancestors = Ancestors.open(folder / "state" / "link.db")
    try:
        async with GuestClient(f"http://127.0.0.1:{port}", None) as guest:
            yield Pair(here, guest.tree(""), ancestors, Mode.PUSH)
    finally:
        ancestors.close()
        here.close()


async def _rescan(pair: Pair, source: Path) -> Row:
    cycle = Cycle(pair)
    await cycle.follow({EVERYTHING})
    ours, walks = [], []
    for _ in range(5):
        began = time.process_time()
        await cycle.follow({EVERYTHING})
        ours.append(time.process_time() - began)
        began = time.process_time()
        _walk(os.fspath(source))
        walks.append(time.process_time() - began)
    return ratio_row("a look at 20,000 files, CPU", min(ours), min(walks), "scandir and lstat")


def _walk(folder: str) -> None:
    with os.scandir(folder) as children:
        for one in children:
            one.stat(follow_symlinks=False)
            if one.is_dir(follow_symlinks=False):
                _walk(one.path)


async def _saves(source: Path, there: Path) -> Row:
    # When the watcher begins, everything is looked at.
    (source / "saved").write_text("before")
    await _until(partial(_holds, there / "saved", "before"))
    await asyncio.sleep(_BEGUN_S)
    took: list[float] = []
    for number in range(_SAVES):
        content = f"save {number}"
        began = time.perf_counter()
        (source / "saved").write_text(content)
        await _until(partial(_holds, there / "saved", content))
        took.append(time.perf_counter() - began)
    p95 = statistics.quantiles(took, n=20)[-1]
    return (
        "a save until it is there, p50 and p95",
        f"{milliseconds(statistics.median(took))}, {milliseconds(p95)}",
        "at most 20 ms, 50 ms",
    )


async def _idle() -> Row:
    await asyncio.sleep(2)
    began = time.process_time()
    await asyncio.sleep(_IDLE_S)
    share = (time.process_time() - began) / _IDLE_S
    return ("a link at rest, between its looks at everything", f"{share:.2%} of a core", "at most 1%")


def _holds(path: Path, content: str) -> bool:
    try:
        return path.read_text() == content
    except OSError:
        return False


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.001)
