"""A real `sbx --mcp`: driven by the SDK's own client, or line by line as any client might."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, Implementation

from tests.support.sbx import Sbx

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")
CLIENT = "test-agent"
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": CLIENT, "version": "1"},
}

# What a request of the newer era brings along, in place of a handshake.
MODERN: dict[str, Any] = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": INITIALIZE["clientInfo"],
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


@asynccontextmanager
async def mcp_client(sbx: Sbx, *flags: str, era: Era = "auto", **options: Any) -> AsyncIterator[Client]:
    """The SDK's client, connected to a server of its own; ended with the block."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "sbxtui", "--mcp", *flags], env=sbx.environment(), cwd=sbx.home
    )
    info = Implementation(name=CLIENT, version="1")
    async with Client(server, mode=era, client_info=info, read_timeout_seconds=60, **options) as client:
        yield client


def data_of(result: CallToolResult) -> dict[str, Any]:
    """What a call that went well found; the text says the same as the structured content."""
    told = json.loads(result.content[0].text)  # type: ignore[union-attr]  # the first block is text
    assert not result.is_error, told
    assert told == result.structured_content and told["ok"] is True
    data: dict[str, Any] = told["data"]
    return data


def error_of(result: CallToolResult) -> dict[str, Any]:
    """Why a call failed."""
    told = json.loads(result.content[0].text)  # type: ignore[union-attr]  # the first block is text
    assert result.is_error and result.structured_content is None and told["ok"] is False, told
    error: dict[str, Any] = told["error"]
    return error


@dataclass(slots=True)
class Lines:
    """A server spoken to line by line. Every line it says must be JSON-RPC."""

    process: subprocess.Popen[bytes]
    said: list[dict[str, Any]] = field(default_factory=list)
    _next_id: int = 0

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Ask; the number of the request."""
        self._next_id += 1
        self.write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params or {}})
        return self._next_id

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Tell."""
        self.write({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def write(self, document: object) -> None:
        """One line."""
        self.raw(json.dumps(document).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def answer(self, number: int) -> dict[str, Any]:
        """The answer to a request; what comes before it is kept in `said`."""
        while not (found := [one for one in self.said if one.get("id") == number and "method" not in one]):
            assert self.read() is not None, f"the server ended: {self.stderr()}"
        return found[0]

    def read(self) -> dict[str, Any] | None:
        """The next line; None at the end."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            return None
        assert line.endswith(b"\n") and not line.endswith(b"\r\n")
        document: dict[str, Any] = json.loads(line)
        assert document.get("jsonrpc") == "2.0", document
        self.said.append(document)
        return document

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        return self.answer(self.send(method, params))

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Call a tool; its result."""
        result: dict[str, Any] = self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]
        return result

    def initialize(self, revision: str = "2025-11-25") -> dict[str, Any]:
        """The handshake of the older era; what the server says of itself."""
        result: dict[str, Any] = self.ask("initialize", {**INITIALIZE, "protocolVersion": revision})["result"]
        self.notify("notifications/initialized")
        return result

    def hang_up(self) -> None:
        """Close our end."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def rest(self) -> list[dict[str, Any]]:
        """Everything that is still said, to the end."""
        while self.read() is not None:
            pass
        return self.said

    def stderr(self) -> str:
        """What it said to people; only once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


@contextmanager
def mcp_lines(sbx: Sbx, *flags: str) -> Iterator[Lines]:
    """A server of its own; killed with the block if it has not ended."""
    process = sbx.spawn("--mcp", *flags, stdin=subprocess.PIPE)
    with process:
        try:
            yield Lines(process)
        finally:
            process.kill()
