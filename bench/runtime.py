"""Sandboxes on this machine: a keeper's against bubblewrap driven by hand with the same guest.

By hand: the same binary, guest, interpreter and folders, but no keeper, limits, uid or filter of ours.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.support import Row, interleaved, milliseconds, ratio_row
from sbxtui.localcloud.keeper_client import KeeperClient, prepare, start_keeper
from sbxtui.localcloud.keeper_processes import descendants
from sbxtui.localcloud.keeper_start import open_bridge
from sbxtui.localcloud.runtimes.base import guest_command
from sbxtui.localcloud.spec import SandboxSpec
from sbxtui.settings import load

_ROUNDS = 9
_PARALLEL = 8
_READY_S = 30.0
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Lab:
    """A folder for sandboxes; `prepared` is what all of them are started with."""

    root: Path
    prepared: SandboxSpec

    def spec(self) -> SandboxSpec:
        """Of a sandbox that was not yet."""
        return _spec(self.root, f"b{next(_numbers)}", self.prepared.runtime)


def run() -> list[Row]:
    """Start to the first answered health check, commands, freeze and thaw, end, memory."""
    with bench_lab() as lab:
        ours, by_hand = interleaved(lambda: _start_ours(lab), lambda: _start_by_hand(lab), rounds=_ROUNDS)
        rows = [ratio_row("start until /healthz answers", ours, by_hand, "by hand")]
        rows += asyncio.run(_alive(lab))
    return rows


@contextmanager
def bench_lab(runtime: str = "bubblewrap") -> Iterator[Lab]:
    """A fresh folder; afterwards nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="sbxb-", dir="/tmp") as name:
        root = Path(name)
        root.chmod(0o711)
        _take_set_up(root / "t" / ".images")
        yield Lab(root, prepare(_spec(root, "none", runtime)))


def _take_set_up(images_dir: Path) -> None:
    """The runsc that this person's home was set up with, if it was."""
    settled = load(os.environ, cwd=Path.cwd()).home.trees_dir / ".images" / "runsc.json"
    if settled.is_file():
        images_dir.mkdir(mode=0o711, parents=True)
        shutil.copyfile(settled, images_dir / settled.name)


def _spec(root: Path, sandbox_id: str, runtime: str = "bubblewrap") -> SandboxSpec:
    return SandboxSpec(
        sandbox_id=sandbox_id,
        image_name="sbx-base",
        memory_mib=512,
        vcpus=os.cpu_count() or 1,
        disk_mib=512,
        pids_max=256,
        tmpfs_mib=64,
        sandbox_dir=root / "t" / sandbox_id,
        control_dir=root / "s" / sandbox_id,
        keeper_socket=root / "s" / f"{sandbox_id}.keeper",
        runtime=runtime,
    )


def _start_ours(lab: Lab) -> float:
    spec = lab.spec()

    async def measure() -> float:
        began = time.perf_counter()
        keeper = await start_keeper(spec)
        await asyncio.to_thread(wait_healthy, spec.control_dir)
        duration_s = time.perf_counter() - began
        await keeper.terminate(0)
        return duration_s

    return asyncio.run(measure())


def _start_by_hand(lab: Lab) -> float:
    return _by_hand(lab, lambda spec: None)


def first_command_by_hand(lab: Lab) -> float:
    """Seconds from nothing until `true` has ended in a sandbox started without us."""
    return _by_hand(lab, lambda spec: run_true(spec.control_dir, boot_id_of(spec.control_dir)))


def _by_hand(lab: Lab, then: Callable[[SandboxSpec], object]) -> float:
    spec = lab.spec()
    work = spec.sandbox_dir / "work"
    for folder in (work, spec.control_dir):
        folder.mkdir(parents=True)
    command = [*bwrap_words(lab, spec, work), *guest_words(lab)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_healthy(spec.control_dir)
        then(spec)
        return time.perf_counter() - began
    finally:
        process.kill()
        process.wait()


def bwrap_words(lab: Lab, spec: SandboxSpec, work: Path) -> list[str]:
    """A command line of bubblewrap as one would write it."""
    values = lab.prepared.prepared
    command = [values["program"], "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    command += ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
    command += ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    if values["python_prefix"]:
        command += ["--ro-bind", values["python_source"], values["python_prefix"]]
    command += ["--ro-bind", values["image_tree"], "/opt/sbx/guest", "--bind", str(work), "/work"]
    return [
        *command,
        "--bind",
        str(spec.control_dir),
        "/run/sbx",
        "--setenv",
        "PATH",
        "/usr/bin:/bin",
        "--chdir",
        "/work",
    ]


def guest_words(lab: Lab) -> list[str]:
    """The first program of a sandbox."""
    python = lab.prepared.prepared["python"]
    return guest_command(python, "/opt/sbx/guest", bridge_socket="/run/sbx/in.sock", nproc=0)


def wait_healthy(control_dir: Path) -> None:
    """Return once the guest behind the bridge answers its health check."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        try:
            if request(control_dir, "GET", "/healthz").startswith(b"HTTP/1.1 200"):
                return
        except OSError:
            pass
        time.sleep(0.001)
    raise RuntimeError("the sandbox did not answer")


def request(control_dir: Path, method: str, path: str, body: bytes = b"", boot: str = "") -> bytes:
    """One exchange with the guest; all of its answer."""
    descriptor = open_bridge(control_dir)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_READY_S)
        try:
            sock.connect(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        sock.sendall(b"8080\n")
        if sock.recv(1) != b"+":
            raise ConnectionRefusedError
        head = f"{method} {path} HTTP/1.1\r\nHost: b\r\nX-Sbx-Boot: {boot}\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        return b"".join(iter(lambda: sock.recv(65_536), b""))


async def _alive(lab: Lab) -> list[Row]:
    """Figures of running sandboxes."""
    spec = lab.spec()
    keeper = await start_keeper(spec)
    await asyncio.to_thread(wait_healthy, spec.control_dir)
    rows = [await asyncio.to_thread(_exec_row, spec.control_dir), *await _freeze_rows(keeper)]
    began = time.perf_counter()
    await keeper.terminate(1)
    rows.append(("end, nothing left", milliseconds(time.perf_counter() - began), ""))
    return [*rows, *await _memory_rows(lab)]


def _exec_row(control_dir: Path) -> Row:
    boot = boot_id_of(control_dir)

    def inside() -> float:
        began = time.perf_counter()
        run_true(control_dir, boot)
        return time.perf_counter() - began

    def outside() -> float:
        began = time.perf_counter()
        subprocess.run(["/bin/true"], check=True)
        return time.perf_counter() - began

    ours, native = interleaved(inside, outside, rounds=30)
    return ratio_row("run /bin/true, over the bridge", ours, native, "as a child of Python")


def boot_id_of(control_dir: Path) -> str:
    """What commands must name."""
    return str(json.loads(request(control_dir, "GET", "/v2/hello").partition(b"\r\n\r\n")[2])["boot_id"])


def run_true(control_dir: Path, boot: str) -> None:
    """The shortest command, to its end."""
    body = json.dumps({"id": uuid.uuid4().hex, "argv": ["/bin/true"]}).encode()
    request(control_dir, "POST", "/v2/jobs?wait_s=10", body, boot)


async def _freeze_rows(keeper: KeeperClient) -> list[Row]:
    took: dict[str, list[float]] = {"freeze": [], "thaw": []}
    for _ in range(_ROUNDS):
        for name, act in (("freeze", keeper.freeze), ("thaw", keeper.thaw)):
            began = time.perf_counter()
            await act()
            took[name].append(time.perf_counter() - began)
    return [(name, milliseconds(sorted(values)[len(values) // 2]), "") for name, values in took.items()]


async def _memory_rows(lab: Lab) -> list[Row]:
    specs = [lab.spec() for _ in range(_PARALLEL)]
    began = time.perf_counter()
    keepers = await asyncio.gather(*(start_keeper(spec) for spec in specs))
    for spec in specs:
        await asyncio.to_thread(wait_healthy, spec.control_dir)
    together_s = time.perf_counter() - began
    pids = [(await keeper.status()).pid for keeper in keepers]
    kept = sum(map(pss_mib, pids)) / _PARALLEL
    inside = sum(pss_mib(pid) for keeper in pids for pid in descendants(keeper)) / _PARALLEL
    await asyncio.gather(*(keeper.terminate(0) for keeper in keepers))
    return [
        (f"{_PARALLEL} started together, until all answer", milliseconds(together_s), ""),
        (f"memory of a keeper, one of {_PARALLEL}", f"{kept:.1f} MiB", "limit 20 MiB"),
        (f"memory of a sandbox's guest, one of {_PARALLEL}", f"{inside:.1f} MiB", ""),
    ]


def pss_mib(pid: int) -> float:
    """Memory of a process, shared pages split among their holders."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    for row in run():
        print(*row, sep=" | ", file=sys.stdout)
