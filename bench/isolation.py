"""Each isolation: starts, forks, suspending, commands and memory of its sandboxes, against its runtime driven by hand.

By hand: the same program, folders, guest and interpreter, and for gVisor the same flags and steps, but no keeper, no
limits, no user of its own and no filter.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.byhand import ByHand, by_hand_of
from bench.runtime import Lab, bench_lab, boot_id_of, pss_mib, request, wait_healthy
from bench.support import Row, interleaved, ratio_row
from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.copies import COPY_FOLDER
from sbxtui.localcloud.golden import shelve
from sbxtui.localcloud.keeper_client import KeeperClient, start_keeper
from sbxtui.localcloud.keeper_processes import descendants
from sbxtui.localcloud.keeper_save import find_saved
from sbxtui.localcloud.spec import SandboxSpec

_ROUNDS = 5
_TOGETHER = 8
_IDLE, _AT_A_TIME = 20, 4
_TIERS = ("gvisor", "bubblewrap")
_FILES = "git init -q r && cd r && for i in $(seq 2000); do echo $i > f$i; done && git add . && git status >/dev/null"
_WHEEL_NAME = "b-1-py3-none-any.whl"
_WHEEL = f"""python3 - <<'END'
import zipfile
with zipfile.ZipFile("{_WHEEL_NAME}", "w") as w:
    w.writestr("b.py", "x = 1\\n" * 1000)
    w.writestr("b-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: b\\nVersion: 1\\n")
    w.writestr("b-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    w.writestr("b-1.dist-info/RECORD", "b.py,,\\nb-1.dist-info/METADATA,,\\nb-1.dist-info/WHEEL,,\\n")
END
python3 -m venv v"""
_WORK = (
    ("run /bin/true", "true"),
    ("git status of 2,000 files", "cd r && git status >/dev/null"),
    (
        "pip install of a small wheel",
        "v/bin/pip install -q --no-index --force-reinstall --no-deps ./b-1-py3-none-any.whl",
    ),
)


@dataclass(frozen=True, slots=True)
class _Ours:
    """A sandbox with all that is ours."""

    spec: SandboxSpec
    keeper: KeeperClient


def run() -> list[Row]:
    """The rows of every isolation that works here."""
    rows: list[Row] = []
    for tier in _TIERS:
        try:
            with bench_lab(tier) as lab:
                rows += [(f"{tier}: {what}", ours, against) for what, ours, against in _rows(lab, tier)]
        except RuntimeUnavailable as exc:
            rows.append((f"{tier}: not here", "", exc.message))
    return rows


def _rows(lab: Lab, tier: str) -> list[Row]:
    rows = [_start_row(lab, "cold start until /healthz answers", from_image=False)]
    if tier == "gvisor":
        _make_golden(lab)
        rows.append(_start_row(lab, "launch from the image of its kind", from_image=True))
        rows.append(_fork_row(lab))
    rows += _sleep_rows(lab)
    rows += _work_rows(lab)
    rows.append(_together_row(lab))
    return [*rows, _memory_row(lab)]


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


async def _timed_async(work: Callable[[], Awaitable[object]]) -> float:
    began_s = time.perf_counter()
    await work()
    return time.perf_counter() - began_s


async def _start(spec: SandboxSpec) -> _Ours:
    keeper = await start_keeper(spec)
    await asyncio.to_thread(wait_healthy, spec.control_dir)
    return _Ours(spec, keeper)


def _ours_started(spec: SandboxSpec) -> float:
    async def measure() -> float:
        began_s = time.perf_counter()
        ours = await _start(spec)
        duration_s = time.perf_counter() - began_s
        await ours.keeper.terminate(0)
        return duration_s

    return asyncio.run(measure())


def _start_row(lab: Lab, what: str, *, from_image: bool) -> Row:
    def by_hand() -> float:
        with by_hand_of(lab) as hand:
            return _timed(lambda: hand.start(lab.root / "image" if from_image else None))

    ours, theirs = interleaved(lambda: _ours_started(lab.spec()), by_hand, rounds=_ROUNDS)
    return ratio_row(what, ours, theirs, "by hand")


def _make_golden(lab: Lab) -> None:
    """The image our sandboxes begin with from now on, and one for those started by hand."""

    async def make() -> None:
        ours = await _start(lab.spec())
        key = (await ours.keeper.status()).golden_key
        await ours.keeper.freeze()
        saved = find_saved(ours.spec.sandbox_dir)
        if saved is not None:
            shelve(saved, ours.spec.image_tree_parent, key)
        await ours.keeper.terminate(0)

    asyncio.run(make())
    with by_hand_of(lab) as hand:
        hand.start()
        hand.save(lab.root / "image")


def _fork_row(lab: Lab) -> Row:
    async def ours() -> float:
        first, second = await _start(lab.spec()), lab.spec()

        async def fork() -> None:
            await first.keeper.copy(second.sandbox_dir / COPY_FOLDER)
            forked.append(await _start(second))

        forked: list[_Ours] = []
        duration_s = await _timed_async(fork)
        for one in (first, *forked):
            await one.keeper.terminate(0)
        return duration_s

    def by_hand() -> float:
        with by_hand_of(lab) as first, by_hand_of(lab) as second:
            first.start()

            def fork() -> None:
                first.save(folder)
                first.start(folder)
                second.start(folder)

            folder = first.folder / "copy"
            return _timed(fork)

    mine, theirs = interleaved(lambda: asyncio.run(ours()), by_hand, rounds=_ROUNDS)
    return ratio_row("fork until both answer", mine, theirs, "by hand")


def _sleep_rows(lab: Lab) -> list[Row]:
    with by_hand_of(lab) as hand, asyncio.Runner() as runner:
        hand.start()
        ours = runner.run(_start(lab.spec()))
        spans: dict[str, list[float]] = {"suspend": [], "resume": []}

        def suspend() -> float:
            return runner.run(_timed_async(ours.keeper.freeze))

        def resume() -> float:
            def wake() -> None:
                runner.run(ours.keeper.thaw())
                # As by hand: in no thread of its own.
                wait_healthy(ours.spec.control_dir)

            return _timed(wake)

        for _ in range(_ROUNDS):
            spans["suspend"].append(suspend() / _timed(hand.suspend))
            spans["resume"].append(resume() / _timed(hand.resume))
        runner.run(ours.keeper.terminate(0))
    return [(name, f"{sorted(ratios)[_ROUNDS // 2]:.2f} ×", "by hand") for name, ratios in spans.items()]


def _work_rows(lab: Lab) -> list[Row]:
    with by_hand_of(lab) as hand, asyncio.Runner() as runner:
        hand.start()
        ours = runner.run(_start(lab.spec()))
        sides = (ours.spec, hand.spec)
        for spec in sides:
            _shell(spec, f"{_FILES}; cd /work; {_WHEEL}")
        rows: list[Row] = []
        for what, line in _WORK:
            if any(_shell(spec, line) for spec in sides):
                rows.append((what, "", "its programs are not here"))
                continue
            mine, theirs = interleaved(
                *((lambda spec=spec, line=line: _timed(lambda: _shell(spec, line))) for spec in sides), rounds=_ROUNDS
            )
            rows.append(ratio_row(what, mine, theirs, "by hand"))
        runner.run(ours.keeper.terminate(0))
    return rows


def _shell(spec: SandboxSpec, line: str) -> int:
    """Run a line to its end; its exit code."""
    order = json.dumps({"id": uuid.uuid4().hex, "shell": line}).encode()
    boot = boot_id_of(spec.control_dir)
    while True:
        # Asked again with the same id, it is the same job.
        answer = request(spec.control_dir, "POST", "/v2/jobs?wait_s=25", order, boot)
        ended = json.loads(answer.partition(b"\r\n\r\n")[2])["exit"]
        if ended:
            return int(ended["code"] or 0)


def _together_row(lab: Lab) -> Row:
    async def ours() -> float:
        specs = [lab.spec() for _ in range(_TOGETHER)]
        began_s = time.perf_counter()
        started = await asyncio.gather(*map(_start, specs))
        duration_s = time.perf_counter() - began_s
        await asyncio.gather(*(one.keeper.terminate(0) for one in started))
        return duration_s

    def by_hand() -> float:
        hands = [ByHand.of(lab) for _ in range(_TOGETHER)]
        image = lab.root / "image"
        with ThreadPoolExecutor(_TOGETHER) as pool:
            duration_s = _timed(lambda: list(pool.map(lambda h: h.start(image if image.exists() else None), hands)))
            list(pool.map(ByHand.end, hands))
        return duration_s

    mine, theirs = interleaved(lambda: asyncio.run(ours()), by_hand, rounds=2)
    return ratio_row(f"{_TOGETHER} at once until all answer", mine, theirs, "by hand")


def _memory_row(lab: Lab) -> Row:
    async def measure() -> float:
        started: list[_Ours] = []
        for _ in range(_IDLE // _AT_A_TIME):
            started += await asyncio.gather(*(_start(lab.spec()) for _ in range(_AT_A_TIME)))
        keepers = [(await one.keeper.status()).pid for one in started]
        used = sum(pss_mib(pid) for keeper in keepers for pid in (keeper, *descendants(keeper)))
        await asyncio.gather(*(one.keeper.terminate(0) for one in started))
        return used

    used_mib = asyncio.run(measure())
    return (
        f"memory of {_IDLE} idle ones, keepers included",
        f"{used_mib:.0f} MiB",
        f"{used_mib / _IDLE:.0f} MiB each, limit 2,048 MiB",
    )
