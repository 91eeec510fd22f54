"""A real guest for tests: `python -m sbxguest.init` on a free port, ended with everything it started."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import sbxguest

READY_S = 45.0
STOP_S = 10.0
_LISTENING = re.compile(rb"listening on port (\d+)")


@dataclass(frozen=True, slots=True)
class GuestProcess:
    """A guest that answers. `url` is `http://127.0.0.1:PORT`; `hook_port` is 0 without hooks."""

    init_pid: int
    port: int
    hook_port: int
    workdir: Path
    log_file: Path

    @property
    def url(self) -> str:
        """Where its API is."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def server_pid(self) -> int:
        """The pid of the server process as of now."""
        for pid in children_of(self.init_pid):
            if b"sbxguest.server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise LookupError("the guest has no server now")

    def descriptors(self) -> tuple[int, int]:
        """How many descriptors the server and init have open now."""
        server, init = (len(os.listdir(f"/proc/{pid}/fd")) for pid in (self.server_pid, self.init_pid))
        return server, init

    async def has_no_more_descriptors_than(self, before: tuple[int, int]) -> None:
        """Wait until that is so: init lets go of what a job had when its loop comes around."""
        async with asyncio.timeout(READY_S):
            while any(now > then for now, then in zip(self.descriptors(), before, strict=True)):
                await asyncio.sleep(0.01)

    async def kill_server(self) -> None:
        """SIGKILL the server and wait until init has started another that answers."""
        old = self.server_pid
        os.kill(old, signal.SIGKILL)
        async with asyncio.timeout(READY_S):
            while True:
                try:
                    if self.server_pid != old and await asyncio.to_thread(_answers, self.url):
                        return
                except (LookupError, OSError):
                    pass
                await asyncio.sleep(0.02)


def init_command(python: str = sys.executable) -> list[str]:
    """The command line of a guest with the packages of this interpreter, whatever `python` has of its own."""
    folders = [str(Path(sbxguest.__file__).parent.parent), *(path for path in sys.path if "site-packages" in path)]
    setup = f"import sys; sys.path[:0] = {folders!r}; from sbxguest.init import main; main()"
    return [python, "-I", "-S", "-c", setup]


def python_for_everyone() -> str | None:
    """An interpreter of this version that any user of this machine may run; None if there is none."""
    own = Path(sys.executable).resolve()
    for candidate in (own, Path(f"/usr/bin/python3.{sys.version_info.minor}")):
        if candidate.exists() and all(folder.stat().st_mode & 0o001 for folder in candidate.parents):
            return sys.executable if candidate is own else str(candidate)
    return None


def children_of(pid: int) -> list[int]:
    """Living children of a process, zombies too."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_bytes()
            except OSError:
                continue
            if int(stat[stat.rindex(b")") + 2 :].split()[1]) == pid:
                found.append(int(entry.name))
    return found


def _answers(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/healthz", timeout=5) as reply:
        return bool(json.loads(reply.read())["status"] == "ok")


@asynccontextmanager
async def running_guest(
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    has_hooks: bool = False,
    prefix: tuple[str, ...] = (),
    python: str = sys.executable,
) -> AsyncIterator[GuestProcess]:
    """Start a guest whose work folder is `folder/work`, listening on loopback only, and end it with all its jobs.

    Args:
        folder: Of the test; the guest's log goes to `folder/guest.log`.
        env: More of `AGENTD_*` and `SBX_*`; nothing of the test's own environment reaches the guest but PATH.
        has_hooks: Enable hooks: app requests get 503 until /run.
        prefix: What to run the guest under, like `("setpriv", "--reuid=65534", …)`.
        python: Another interpreter of this version, for a user who may not run ours; it gets this one's packages.
    """
    hooks = {"SBX_HOOKS": "1"} if has_hooks else {}
    process = launch_guest(folder, {**hooks, **(env or {})}, [*prefix, *init_command(python)])
    try:
        yield await answering_guest(process, folder, has_hooks=has_hooks)
    finally:
        await asyncio.to_thread(end_guest, process)


def launch_guest(
    folder: Path, env: Mapping[str, str] | None = None, command: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a guest as `running_guest` does; the caller ends it."""
    workdir, home = folder / "work", folder / "home"
    for made in (workdir, home):
        made.mkdir(parents=True, exist_ok=True)
    guest_env = {
        "PATH": os.environ["PATH"],
        "AGENTD_PORT": "0",
        "AGENTD_HOOK_PORT": "0",
        "AGENTD_BIND": "127.0.0.1",
        "SBX_WORKDIR": str(workdir),
        # Empty: a developer's own profile, which login shells read, can be slow and can be broken.
        "SBX_JOB_HOME": str(home),
        **(env or {}),
    }
    with (folder / "guest.log").open("wb") as log:
        return subprocess.Popen(
            command or init_command(),
            env=guest_env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


async def answering_guest(process: subprocess.Popen[bytes], folder: Path, *, has_hooks: bool = False) -> GuestProcess:
    """The guest that was launched in `folder`, once it answers."""
    port, hook_port = await _ports(process, folder / "guest.log", count=1 + has_hooks)
    return GuestProcess(process.pid, port, hook_port, folder / "work", folder / "guest.log")


def end_guest(process: subprocess.Popen[bytes]) -> None:
    """End a guest with all its jobs."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _ports(process: subprocess.Popen[bytes], log_file: Path, *, count: int) -> tuple[int, int]:
    """The app port and the hook port (or 0), once the guest answers."""
    async with asyncio.timeout(READY_S):
        while True:
            ports = [int(port) for port in _LISTENING.findall(log_file.read_bytes())]
            if process.poll() is not None:
                raise RuntimeError(f"the guest ended: {log_file.read_text()}")
            try:
                if len(ports) == count and await asyncio.to_thread(_answers, f"http://127.0.0.1:{ports[0]}"):
                    return ports[0], ports[1] if count > 1 else 0
            except OSError:
                pass
            await asyncio.sleep(0.02)
