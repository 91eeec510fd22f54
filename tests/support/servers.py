"""Programs that listen on a port, for tests that need a real one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@asynccontextmanager
async def program(*words: str | Path, cwd: Path, port: int, user: str = "", **env: str) -> AsyncIterator[None]:
    """A server that listens on a port of this machine's loopback, ended with what it started."""
    log = (cwd / "server.log").open("ab")
    process = await asyncio.create_subprocess_exec(
        *map(str, words),
        cwd=cwd,
        env={**os.environ, "HOME": str(cwd), **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        user=user or None,
    )
    try:
        while True:
            assert process.returncode is None, (cwd / "server.log").read_text()[-2000:]
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            writer.close()
            break
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
        log.close()
