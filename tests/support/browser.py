"""Headless Chromium, told what to do over its own debugging protocol."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

# The first is the smallest to fetch: it has no windows at all.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")
PROGRAM = next(filter(None, map(shutil.which, _NAMES)), "")
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


class Page:
    """One page; what is evaluated in it comes back as JSON has it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        number = next(self._ids)
        await self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            told = json.loads(await self._socket.recv())
            if told.get("id") == number:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result

    async def go(self, url: str) -> None:
        """Open a page."""
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """What an expression is in the page; None where it throws."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        while await self.value(expression) is not True:
            await asyncio.sleep(0.05)

    async def is_soon(self, expression: str, within_s: float) -> bool:
        """Whether an expression is true in the page before so much time has passed."""
        try:
            async with asyncio.timeout(within_s):
                await self.until(expression)
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser that was started, whose files are in `folder`."""

    folder: Path

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """A new, empty page."""
        told = self.folder / "DevToolsActivePort"
        while not (told.exists() and len(told.read_text().splitlines()) == 2):
            await asyncio.sleep(0.05)
        port, path = told.read_text().splitlines()
        async with _connect(port, path) as control:
            target = (await Page(control).call("Target.createTarget", url="about:blank"))["targetId"]
            try:
                async with _connect(port, f"/devtools/page/{target}") as socket:
                    yield Page(socket)
            finally:
                await Page(control).call("Target.closeTarget", targetId=target)


def _connect(port: str, path: str) -> connect:
    # A browser that starts on a busy machine is silent for longer than the library waits for a sign of life.
    return connect(f"ws://127.0.0.1:{port}{path}", max_size=None, ping_interval=None, open_timeout=None)


@contextmanager
def running_browser(folder: Path) -> Iterator[Browser]:
    """A browser of its own; it may not answer yet."""
    words = [PROGRAM, *_FLAGS, f"--user-data-dir={folder}", "--remote-debugging-port=0", "about:blank"]
    # The program may be a script that waits for the browser.
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield Browser(folder)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
