"""A folder that is kept equal with a sandbox's: looks at it, saves, switches of branches, and what rest costs."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bench.guest import running_guest
from bench.support import Row, milliseconds, ratio_row
from bench.trees import SMALL
from sbxtui.guest.client import GuestClient
from sbxtui.services.sync.cycle import Cycle
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.link import LiveLink
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.pair import Pair
from sbxtui.services.sync.status import LinkState
from sbxtui.services.sync.watch import EVERYTHING
from sbxtui.store.ancestors import Ancestors

_SAVES = 100
_LOOKS = 7
_DEADLINE_S = 120.0
_IDLE_S = 20.0
_BEGUN_S = 10.0
_EVERY_S = 0.015
_SWITCHES = 20
_EDITED, _MOVED = 2_500, 1_250


def run() -> list[Row]:
    """A link in this process, its guest in others."""
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as name:
        return asyncio.run(_at_rest_and_saved(Path(name))) + asyncio.run(_switched(Path(name) / "git"))


async def _at_rest_and_saved(folder: Path) -> list[Row]:
    source, there = folder / "h" / "source", folder / "work"
    source.mkdir(parents=True)
    SMALL.make(source)
    with running_guest(folder) as (port, _):
        async with _linked(folder, source, port) as pair:
            await Cycle(pair).compare()
            # What is as young as this proves nothing.
            await asyncio.sleep(2.5)
            look_s, rows = await _looks(pair, source)
            async with _running(pair):
                # When the watcher begins, everything is looked at.
                await asyncio.sleep(_BEGUN_S)
                rows.append(await _idle(look_s))
                rows.append(_row_of("a save until it is there", await _saves(source, there), "at most 20 ms, 50 ms"))
                async with _writing(source):
                    took = await _saves(source, there)
                rows.append(
                    _row_of(
                        f"the same while a new file comes every {_EVERY_S * 1000:.0f} ms", took, "p95 at most 150 ms"
                    )
                )
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


@asynccontextmanager
async def _running(pair: Pair) -> AsyncIterator[LiveLink]:
    link = LiveLink(pair)
    running = asyncio.create_task(link.run())
    try:
        await _until(lambda: link.status.state is LinkState.WATCHING)
        yield link
    finally:
        link.stop()
        await running


async def _looks(pair: Pair, source: Path) -> tuple[float, list[Row]]:
    cycle = Cycle(pair)
    await cycle.follow({EVERYTHING})
    ours, walks = [], []
    for _ in range(_LOOKS):
        began = time.process_time()
        await cycle.follow({EVERYTHING})
        ours.append(time.process_time() - began)
        began = time.process_time()
        _walk(os.fspath(source))
        walks.append(time.process_time() - began)
    return min(ours), [ratio_row("a look at 20,000 files, CPU", min(ours), min(walks), "scandir and lstat")]


def _walk(folder: str) -> None:
    with os.scandir(folder) as children:
        for one in children:
            one.stat(follow_symlinks=False)
            if one.is_dir(follow_symlinks=False):
                _walk(one.path)


async def _saves(source: Path, there: Path) -> list[float]:
    (source / "saved").write_text("before")
    await _until(partial(_holds, there / "saved", "before"))
    took: list[float] = []
    for number in range(_SAVES):
        content = f"save {number}"
        began = time.perf_counter()
        (source / "saved").write_text(content)
        await _until(partial(_holds, there / "saved", content))
        took.append(time.perf_counter() - began)
    return took


def _row_of(what: str, took: list[float], goal: str) -> Row:
    p95 = statistics.quantiles(took, n=20)[-1]
    return (f"{what}, p50 and p95", f"{milliseconds(statistics.median(took))}, {milliseconds(p95)}", goal)


@asynccontextmanager
async def _writing(source: Path) -> AsyncIterator[None]:
    async def write() -> None:
        number = 0
        while True:
            (source / f"log{number}").write_text("x")
            number += 1
            await asyncio.sleep(_EVERY_S)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()


async def _idle(look_s: float) -> Row:
    began = time.process_time()
    await asyncio.sleep(_IDLE_S)
    share = (time.process_time() - began) / _IDLE_S
    return (
        "a link at rest",
        f"{share:.2%} of a core, and {look_s / 30:.2%} where all is looked at every 30 s",
        "at most 1% together",
    )


async def _switched(folder: Path) -> list[Row]:
    source, there = folder / "h" / "source", folder / "work"
    source.mkdir(parents=True)
    await asyncio.to_thread(_make_branches, source)
    took: list[float] = []
    with running_guest(folder) as (port, _):
        async with _linked(folder, source, port) as pair, _running(pair) as link:
            await _until(lambda: _is_equal(source, there))
            await asyncio.sleep(_BEGUN_S)
            for number in range(_SWITCHES):
                pushed = link.status.pushed
                await asyncio.to_thread(_git, source, "checkout", "-q", ("one", "two")[number % 2])
                began = time.perf_counter()
                ended = began
                # Reading both folders costs as much as what is measured: not before the link says that it is done.
                while ended == began or not await asyncio.to_thread(_is_equal, source, there):
                    await _until(partial(_is_at_rest, link, pushed))
                    ended = time.perf_counter()
                took.append(ended - began)
    paths = f"{_EDITED + 2 * _MOVED:,} paths, {_SWITCHES} times"
    return [
        (
            f"after a switch of branches, {paths}",
            f"{milliseconds(statistics.median(took))} p50, {milliseconds(max(took))} at most",
            "all equal within 2 s",
        )
    ]


def _make_branches(source: Path) -> None:
    _git(source, "init", "-q", "-b", "one")
    for branch in ("one", "two"):
        for number in range(_EDITED):
            _write(source / "src" / f"d{number % 200}" / f"f{number}", f"{branch} {number}\n" * 40)
        for number in range(_MOVED):
            _write(source / branch / f"d{number % 100}" / f"f{number}", f"{branch} {number}\n" * 40)
        _git(source, "add", ".")
        _git(source, "commit", "-q", "-m", branch)
        if branch == "one":
            _git(source, "checkout", "-q", "-b", "two")
            _git(source, "rm", "-q", "-r", "one")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _git(source: Path, *words: str) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(source), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=b", "-c", "user.email=b@example.org", "-c", "gc.auto=0")
    subprocess.run(["git", *who, "-C", str(source), *words], env=env, check=True, timeout=_DEADLINE_S)


def _is_at_rest(link: LiveLink, pushed: int) -> bool:
    """Whether it has carried something over by now, and waits for more."""
    return link.status.pushed > pushed and link.status.state is LinkState.WATCHING


def _is_equal(source: Path, there: Path) -> bool:
    try:
        return _contents(source) == _contents(there)
    except OSError:
        return False


def _contents(root: Path) -> dict[str, str]:
    """The first lines: each names its branch."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            path = Path(folder) / name
            with path.open() as file:
                found[os.fspath(path.relative_to(root))] = file.readline()
    return found


def _holds(path: Path, content: str) -> bool:
    try:
        return path.read_text() == content
    except OSError:
        return False


async def _until(is_so: Callable[[], bool], every_s: float = 0.001) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not await asyncio.to_thread(is_so) if every_s > 0.01 else not is_so():
            await asyncio.sleep(every_s)
