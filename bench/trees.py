"""Folders that syncs are measured with, and a guest that `sbx` knows as a sandbox."""

from __future__ import annotations

import random
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.guest import running_guest
from bench.support import bench_home, serving
from sbxtui.core.model import Context, ContextKind, ContextName, EndpointToken, SandboxId, SandboxRecord, SandboxState
from sbxtui.settings import load
from sbxtui.store.tokens import Tokens
from sbxtui.wiring import Services

MIB = 2**20
NAME = "app"
_FAR = SandboxId("microvm-bench")


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder to sync: how many files, in folders of how many, each how long, of text or of noise."""

    words: str
    files: int
    per_folder: int
    size_bytes: int
    is_text: bool = True

    def make(self, folder: Path) -> None:
        """Make it."""
        text, noise = _source_text() if self.is_text else b"", random.Random(1)
        for number in range(self.files):
            parent = folder / f"d{number // self.per_folder // 20}" / f"e{number // self.per_folder}"
            parent.mkdir(parents=True, exist_ok=True)
            with (parent / f"f{number}").open("wb") as file:
                for start in range(0, self.size_bytes, MIB):
                    size_bytes = min(MIB, self.size_bytes - start)
                    at = (number * self.size_bytes + start) % max(1, len(text) - MIB)
                    file.write(text[at : at + size_bytes] or noise.randbytes(size_bytes))


def _source_text() -> bytes:
    """What people sync: what somebody wrote, which packs to a fourth. It is Python's own library."""
    library = Path(sysconfig.get_path("stdlib"))
    files = (path for path in library.rglob("*.py") if "-packages" not in str(path.relative_to(library)))
    return b"".join(path.read_bytes() for path in sorted(files))


SOURCE = Tree("2,000 files, 30 MB", 2_000, 8, 15_000)
SMALL = Tree("20,000 files of 2 kB", 20_000, 10, 2_000)
LARGE = Tree("one file of 500 MB", 1, 1, 500 * 10**6, is_text=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with a tree, and a guest: its port, its server's pid, its work folder.

    `env` is that of an `sbx` to which the guest is the sandbox `NAME`.
    """

    source: Path
    workdir: Path
    port: int
    server_pid: int
    env: Mapping[str, str]


@contextmanager
def placed(tree: Tree | None, *, far: tuple[float, float] | None = None) -> Iterator[Place]:
    """A tree, or an empty folder, and a guest for it; all of it goes with the block.

    `far` is the delay of the way there in seconds, each way, and its bytes per second.
    """
    with bench_home() as home, tempfile.TemporaryDirectory(prefix="sbx-bench-") as name:
        folder = Path(name)
        source = folder / "h" / "source"
        source.mkdir(parents=True)
        if tree is not None:
            tree.make(source)
        with running_guest(folder) as (port, server_pid):
            env = {**home.env, "SBX_CONTEXT": "bench"}
            way = nullcontext((port, None)) if far is None else serving("bench.relay", str(port), *map(str, far))
            with way as (port_here, _):
                know(home.folder, env, port_here)
                yield Place(source, folder / "work", port_here, server_pid, env)


def know(home: Path, env: Mapping[str, str], port: int) -> None:
    """Give a home a context with what is at a port as its sandbox, whose token is never asked for anew."""
    services = Services(load({"SBX_HOME": env["SBX_HOME"]}, cwd=home), actor="bench", context_name="bench")
    now = datetime.now(UTC)
    try:
        services.contexts.add(Context(ContextName("bench"), ContextKind.AWS, region="us-east-1"))
        Tokens(services.store).put("bench", EndpointToken(_FAR, (8080,), "any", now, now + timedelta(hours=1)))
        image = "arn:aws:lambda:us-east-1:1:microvm-image:x"
        record = SandboxRecord(_FAR, SandboxState.RUNNING, f"http://127.0.0.1:{port}", image, "1", now, 0)
        services.registry.adopt("bench", NAME, record, actor="bench")
    finally:
        services.close()
