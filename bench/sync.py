"""A folder carried over to a sandbox for the first time: against a tar pipe, rsync and JSON per file, near and far.

Near and far are a guest of this machine's, without a control plane. tar and rsync copy from folder to folder of this
machine, with no sandbox between. What they need, or the way, is compared with a sync less what that takes with nothing
to send, which is above all the start of a Python program. Disks differ: TMPDIR says which one is measured. JSON and
base64, one file per request, is measured on a part and told for the whole.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from bench.guest import peak_rss_bytes
from bench.support import SBX, Ended, Row, ratio_row, run_child
from bench.trees import LARGE, MIB, NAME, SMALL, SOURCE, Place, Tree, placed

_DEADLINE_S = 600.0
_DELAY_S, _FAR_BYTES_PER_S = 0.01, 100e6 / 8
_SEEDED_FILES, _SEEDED_BYTES = 2_000, 50 * 10**6
_FAR_CALLERS = 8
_GOALS = {SOURCE: 2.5, SMALL: 3.0, LARGE: 1.5}
_FAR_GOAL = 1.4
_EMPTY_RUNS = 3
_LESS = "the same, less a sync of nothing"


def run() -> list[Row]:
    """Whole commands on a guest of our own."""
    with placed(None) as place:
        empty = min((_synced(place) for _ in range(_EMPTY_RUNS)), key=lambda ended: ended.duration_s)
    near = [row for tree in (SOURCE, SMALL, LARGE) for row in _near(tree, empty)]
    return [*near, *(row for tree in (SOURCE, SMALL) for row in _far(tree, empty))]


def _synced(place: Place) -> Ended:
    return run_child([*SBX, "sync", NAME, str(place.source), "--once"], env=place.env)


def _near(tree: Tree, empty: Ended) -> Iterator[Row]:
    with placed(tree) as place:
        before = peak_rss_bytes(place.server_pid)
        ours = _synced(place)
        grown_mib = (peak_rss_bytes(place.server_pid) - before) / MIB
        yield ratio_row(f"first sync, {tree.words}", ours.duration_s, _piped(place), "tar c | sbx exec -i tar x")
        yield ratio_row(
            "", ours.duration_s, _seeded(place.source, place.port, callers=1), "JSON and base64, one by one"
        )
        less_s = ours.duration_s - empty.duration_s
        bare_s = _timed(lambda target: f"tar c -C {place.source} . | tar x -C {target}")
        yield ratio_row(_LESS, less_s, bare_s, f"tar c | tar x, no sandbox (at most {_GOALS[tree]} ×)")
        if shutil.which("rsync"):
            bare_s = _timed(lambda target: f"rsync -a {place.source}/ {target}/")
            yield ratio_row("", less_s, bare_s, "rsync -a, no sandbox")
        yield (
            f"its memory, {tree.words}",
            f"{(ours.peak_rss_bytes - empty.peak_rss_bytes) / MIB:.0f} MiB more than with nothing to send, "
            f"the guest {grown_mib:.0f} MiB more",
            "at most 64 MiB more on either side",
        )


def _far(tree: Tree, empty: Ended) -> Iterator[Row]:
    words = f"{tree.words}, 20 ms and 100 Mbit/s away"
    with placed(tree, far=(_DELAY_S, _FAR_BYTES_PER_S)) as place:
        ours = _synced(place)
        packed_bytes = sum(len(zlib.compress(path.read_bytes(), 1)) for path in _files(place.source))
        floor_s = packed_bytes / _FAR_BYTES_PER_S + 2 * _DELAY_S
        seeded_s = _seeded(place.source, place.port, callers=_FAR_CALLERS)
        yield ratio_row(f"first sync, {words}", ours.duration_s, seeded_s, f"JSON and base64, {_FAR_CALLERS} at once")
        less_s = ours.duration_s - empty.duration_s
        yield ratio_row(_LESS, less_s, floor_s, f"its packed contents need on the way (at most {_FAR_GOAL} ×)")


def _piped(place: Place) -> float:
    began = time.perf_counter()
    with subprocess.Popen(["tar", "c", "-C", place.source, "."], stdout=subprocess.PIPE) as packing:
        unpack = [*SBX, "exec", "--no-flush", "--stdin", NAME, "--", "sh", "-c", "mkdir ../tar && tar x -C ../tar"]
        subprocess.run(unpack, stdin=packing.stdout, env=place.env, check=True, timeout=_DEADLINE_S)
    return time.perf_counter() - began


def _timed(command: Callable[[str], str]) -> float:
    with tempfile.TemporaryDirectory(prefix="sbx-bench-") as target:
        began = time.perf_counter()
        subprocess.run(["sh", "-c", command(target)], check=True, timeout=_DEADLINE_S)
        return time.perf_counter() - began


def _seeded(source: Path, port: int, *, callers: int) -> float:
    """As the seed did it, a document for each file; of many or large files a part, told for the whole."""
    files = sorted(_files(source))
    part = files[:_SEEDED_FILES]
    with ThreadPoolExecutor(callers) as pool:
        began = time.perf_counter()
        list(pool.map(lambda share: _seed(source, port, share), [part[at::callers] for at in range(callers)]))
        took_s = time.perf_counter() - began
    sent = sum(min(path.stat().st_size, _SEEDED_BYTES) for path in part)
    return took_s * sum(path.stat().st_size for path in files) / sent


def _seed(source: Path, port: int, files: Iterable[Path]) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    for path in files:
        with path.open("rb") as file:
            content = base64.b64encode(file.read(_SEEDED_BYTES)).decode()
        body = json.dumps({"path": f"../seed/{path.relative_to(source)}", "content": content, "encoding": "base64"})
        connection.request("POST", "/v1/fs/write", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status >= 300:
            raise RuntimeError(answer.read().decode())
        answer.read()
    connection.close()


def _files(source: Path) -> Iterator[Path]:
    return (path for path in source.rglob("*") if path.is_file())
