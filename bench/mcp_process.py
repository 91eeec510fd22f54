"""A server of MCP in a process of its own, spoken to line by line."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

_INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
_ANSWER_S = 300


class Server:
    """A server in a process of its own; any number of threads may ask it. `told` is what it says unasked."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.told: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._writing = threading.Lock()
        self._waiting: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._numbers = iter(range(1, 1 << 30))
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        """Ask, and wait for the answer.

        Raises:
            RuntimeError: It is an error, or a failed call of a tool.
        """
        found = self.begin(method, params).get(timeout=_ANSWER_S)
        if "error" in found or found["result"].get("isError"):
            raise RuntimeError(f"{method} failed: {found}")
        return found

    def begin(self, method: str, params: Mapping[str, object]) -> SimpleQueue[dict[str, Any]]:
        """Ask; where the answer will be."""
        answer: SimpleQueue[dict[str, Any]] = SimpleQueue()
        with self._writing:
            number = next(self._numbers)
            self._waiting[number] = answer
            self._send({"id": number, "method": method, "params": params})
        return answer

    def initialize(self) -> None:
        """The handshake."""
        self.ask("initialize", _INITIALIZE)
        with self._writing:
            self._send({"method": "notifications/initialized"})

    def call(self, tool: str, **arguments: object) -> float:
        """Call a tool; seconds until it has answered."""
        return self.timed("tools/call", {"name": tool, "arguments": arguments})

    def timed(self, method: str, params: Mapping[str, object]) -> float:
        """Seconds until a request was answered."""
        began_s = time.perf_counter()
        self.ask(method, params)
        return time.perf_counter() - began_s

    def hang_up(self) -> None:
        """Close our end."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    @property
    def rss_bytes(self) -> int:
        """The memory it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024

    @property
    def cpu_s(self) -> float:
        """Seconds of a processor it has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _send(self, message: Mapping[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            answer = self._waiting.pop(message.get("id"), None)
            (self.told if answer is None else answer).put(message)


@contextmanager
def served(command: Sequence[str], env: Mapping[str, str], folder: Path) -> Iterator[Server]:
    """A server that was greeted; killed with the block."""
    process = subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        server = Server(process)
        server.initialize()
        yield server
    finally:
        process.kill()
        process.wait()
