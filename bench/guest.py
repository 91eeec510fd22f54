"""A guest of a benchmark's own: real processes on a free port, ended with the block."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

READY_S = 30.0
_LISTENING = re.compile(rb"listening on port (\d+)")


@contextmanager
def running_guest(folder: Path) -> Iterator[tuple[int, int]]:
    """The port of a guest whose work folder is `folder/work`, and the pid of its server."""
    workdir, log = folder / "work", folder / "guest.log"
    workdir.mkdir()
    env = {"PATH": os.environ["PATH"], "AGENTD_PORT": "0", "AGENTD_BIND": "127.0.0.1", "SBX_WORKDIR": str(workdir)}
    with log.open("wb") as out, child(["-m", "sbxguest.init"], env, out.fileno()) as init:
        port = int(wait_for(lambda: _LISTENING.search(log.read_bytes())).group(1))
        wait_for(lambda: _answers(port))
        yield port, _server_pid(init.pid)


@contextmanager
def child(arguments: list[str], env: dict[str, str], out: int) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process of its own environment, ended with the block."""
    command = [sys.executable, "-I", *arguments]
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(READY_S)


def wait_for(look: Callable[[], T | None]) -> T:
    """What `look` finds in time.

    Raises:
        RuntimeError: It finds nothing.
    """
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.01)
    raise RuntimeError("the guest did not start")


def peak_rss_bytes(pid: int) -> int:
    """The most memory a process ever held."""
    match = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            return connection.recv(100).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def _server_pid(init_pid: int) -> int:
    """The child of init that holds the most memory; the others are idle forks of init."""
    children = Path(f"/proc/{init_pid}/task/{init_pid}/children").read_text().split()
    return max((int(pid) for pid in children), key=peak_rss_bytes)
