"""A folder carried over to a sandbox for the first time: against a tar pipe, rsync and JSON per file, near and far.

Near and far are a guest of this machine's, without a control plane. tar and rsync copy from folder to folder of this
machine, with no sandbox between. What they need, or the way, is compared with a sync less what that takes with nothing
to send, which is above all the start of a Python program; near, both by the least of some runs in turns. Disks differ:
TMPDIR says which one is measured. JSON and base64, one file per request, is measured on a part and told for the whole.
"""

from __future__ import annotations

import asyncio
import base64
import math
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

import httpx
from blake3 import blake3

from bench.guest import peak_rss_bytes
from bench.support import SBX, Ended, Row, ratio_row, run_child, run_within
from bench.trees import LARGE, MIB, NAME, SMALL, SOURCE, Place, Tree, placed
from sbxguest.tree.zstd import zstd

_DEADLINE_S = 600.0
# How long each way takes, and how many bytes it carries a second.
_WAYS = {"20 ms and 100 Mbit/s away": (0.01, 100e6 / 8), "80 ms and 20 Mbit/s away": (0.04, 20e6 / 8)}
_SEEDED_FILES, _SEEDED_BYTES = 2_000, 50 * 10**6
_FAR_CALLERS = 8
_SLOW_BYTES_PER_S = 50e6 / 8
_GOALS = {SOURCE: 2.5, SMALL: 3.0, LARGE: 1.5}
_FAR_GOAL = 1.4
_RUNS = 3
_PIECE_BYTES = 1024 * 1024
_LESS = "the same, less a sync of nothing"


def run() -> list[Row]:
    """Whole commands on a guest of our own."""
    with placed(None) as place:
        empty = min((_synced(place) for _ in range(_RUNS)), key=lambda ended: ended.duration_s)
    near = [row for tree in (SOURCE, SMALL, LARGE) for row in _near(tree, empty)]
    return [*near, *(row for tree in (SOURCE, SMALL) for words in _WAYS for row in _far(tree, words, empty))]


def _synced(place: Place) -> Ended:
    return run_child([*SBX, "sync", NAME, str(place.source), "--once"], env=place.env)


@dataclass(frozen=True, slots=True)
class _Copied:
    """What carrying a tree over took, and how much more memory the guest needed; and copies of it without a sandbox."""

    ours: Ended
    grown_mib: float
    tar_s: float
    rsync_s: float
    floor_s: float


def _copied(place: Place) -> _Copied:
    before = peak_rss_bytes(place.server_pid)
    ours = _synced(place)
    grown_mib = (peak_rss_bytes(place.server_pid) - before) / MIB
    tar_s = _timed(lambda target: f"tar c -C {place.source} . | tar x -C {target}")
    rsync_s = _timed(lambda target: f"rsync -a {place.source}/ {target}/") if shutil.which("rsync") else math.nan
    files = list(_files(place.source))
    return _Copied(ours, grown_mib, tar_s, rsync_s, _carried(files[0]) if len(files) == 1 else math.nan)


def _near(tree: Tree, empty: Ended) -> Iterator[Row]:
    runs: list[_Copied] = []
    for _ in range(_RUNS - 1):
        with placed(tree) as place:
            runs.append(_copied(place))
    with placed(tree) as place:
        runs.append(_copied(place))
        ours = min((run.ours for run in runs), key=lambda ended: ended.duration_s)
        yield ratio_row(f"first sync, {tree.words}", ours.duration_s, _piped(place), "tar c | sbx exec -i tar x")
        yield ratio_row(
            "", ours.duration_s, _seeded(place.source, place.port, callers=1), "JSON and base64, one by one"
        )
        less_s = ours.duration_s - empty.duration_s
        bare_s = min(run.tar_s for run in runs)
        yield ratio_row(_LESS, less_s, bare_s, f"tar c | tar x, no sandbox (at most {_GOALS[tree]} ×)")
        for words, bare_s in (
            ("rsync -a, no sandbox", min(run.rsync_s for run in runs)),
            ("read, BLAKE3, loopback, BLAKE3 and written, by nobody's protocol", min(run.floor_s for run in runs)),
        ):
            if not math.isnan(bare_s):
                yield ratio_row("", less_s, bare_s, words)
        yield (
            f"its memory, {tree.words}",
            f"{max(run.ours.peak_rss_bytes - empty.peak_rss_bytes for run in runs) / MIB:.0f} MiB more than with "
            f"nothing to send, the guest {max(run.grown_mib for run in runs):.0f} MiB more",
            "at most 64 MiB more on either side",
        )


def _carried(path: Path) -> float:
    """How long the work takes that nobody can leave out who carries a file over a connection and checks it."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryFile(buffering=0) as target:
        began = time.perf_counter()
        taking = threading.Thread(target=_taken, args=(server, target))
        taking.start()
        digest = blake3()
        with path.open("rb", buffering=0) as file, socket.create_connection(server.getsockname()) as connection:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
                connection.sendall(piece)
        taking.join()
        return time.perf_counter() - began


def _taken(server: socket.socket, target: RawIOBase) -> None:
    buffer = memoryview(bytearray(_PIECE_BYTES))
    digest = blake3()
    connection, _ = server.accept()
    with connection:
        while size_bytes := connection.recv_into(buffer):
            digest.update(buffer[:size_bytes])
            target.write(buffer[:size_bytes])


def _far(tree: Tree, way: str, empty: Ended) -> Iterator[Row]:
    words, (delay_s, bytes_per_s) = f"{tree.words}, {way}", _WAYS[way]
    with placed(tree, far=(delay_s, bytes_per_s)) as place:
        ours = _synced(place)
        level = 1 if bytes_per_s > _SLOW_BYTES_PER_S else 3
        floor_s = _packed_bytes(place.source, level) / bytes_per_s + 2 * delay_s
        seeded_s = _seeded(place.source, place.port, callers=_FAR_CALLERS)
        yield ratio_row(f"first sync, {words}", ours.duration_s, seeded_s, f"JSON and base64, {_FAR_CALLERS} at once")
        less_s = ours.duration_s - empty.duration_s
        yield ratio_row(_LESS, less_s, floor_s, f"tar c | zstd -{level} needs on the way (at most {_FAR_GOAL} ×)")


def _piped(place: Place) -> float:
    began = time.perf_counter()
    with subprocess.Popen(["tar", "c", "-C", place.source, "."], stdout=subprocess.PIPE) as packing:
        unpack = [*SBX, "exec", "--no-flush", "--stdin", NAME, "--", "sh", "-c", "mkdir ../tar && tar x -C ../tar"]
        run_within(_DEADLINE_S, unpack, stdin=packing.stdout, env=place.env)
    return time.perf_counter() - began


def _timed(command: Callable[[str], str]) -> float:
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as target:
        began = time.perf_counter()
        run_within(_DEADLINE_S, ["sh", "-c", command(target)])
        return time.perf_counter() - began


def _seeded(source: Path, port: int, *, callers: int) -> float:
    """As the seed did it, a document for each file, by httpx; of many or large files a part, told for the whole."""
    files = sorted(_files(source))
    part = files[:_SEEDED_FILES]
    began = time.perf_counter()
    asyncio.run(_seed([part[at::callers] for at in range(callers)], source, port))
    took_s = time.perf_counter() - began
    sent = sum(min(path.stat().st_size, _SEEDED_BYTES) for path in part)
    return took_s * sum(path.stat().st_size for path in files) / sent


async def _seed(shares: Sequence[Sequence[Path]], source: Path, port: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=_DEADLINE_S) as client:

        async def send(share: Sequence[Path]) -> None:
            for path in share:
                with path.open("rb") as file:
                    content = base64.b64encode(file.read(_SEEDED_BYTES)).decode()
                body = {"path": f"../seed/{path.relative_to(source)}", "content": content, "encoding": "base64"}
                (await client.post("/v1/fs/write", json=body)).raise_for_status()

        await asyncio.gather(*map(send, shares))


def _packed_bytes(source: Path, level: int) -> int:
    """What a folder comes to as a packed tar stream."""
    packed = subprocess.run(["tar", "c", "-C", source, "."], stdout=subprocess.PIPE, check=True)
    return len(zstd.compress(packed.stdout, level))


def _files(source: Path) -> Iterator[Path]:
    return (path for path in source.rglob("*") if path.is_file())
