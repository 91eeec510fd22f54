"""The way into a machine that can only call out: a real ferry, and the bridge that calls it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from sbxguest import ferry
from sbxguest.bridge import Bridge
from sbxguest.caller import Caller
from tests.guest.test_bridge import count_to_end, dial, echo, serving

SCRIPT = Path(ferry.__file__)
WAIT_S = 20


@asynccontextmanager
async def machine(calls: Path) -> AsyncIterator[None]:
    """The bridge of a machine whose calls reach a unix socket, as those over vsock do on their host."""

    async def call() -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, str(calls))
        except OSError:
            sock.close()
            raise
        return sock

    bridge = Bridge(partial(Caller, call), {}, max_links=64)
    try:
        yield
    finally:
        bridge.close()


async def test_whoever_comes_to_the_ferry_reaches_the_ports_of_a_machine_that_only_calls_out(tmp_path: Path) -> None:
    inside, calls = tmp_path / "in.sock", tmp_path / "calls"
    command = [sys.executable, "-I", "-S", "-B", str(SCRIPT), str(inside), str(calls)]
    content = os.urandom(300_000)

    async def exchange(port: int) -> bool:
        answer, reader, writer = await dial(inside, b"%d\n" % port)
        assert answer == b"+"

        async def send() -> None:
            writer.write(content)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        received = await reader.read()
        await sending
        writer.close()
        return received == content

    process = subprocess.Popen(command, env={})
    try:
        # It calls before anybody is there, and again.
        async with asyncio.timeout(WAIT_S), machine(calls), serving(echo) as port, serving(count_to_end) as counting:
            while not inside.exists():
                await asyncio.sleep(0.01)
            # More than ever wait at once.
            assert all(await asyncio.gather(*(exchange(port) for _ in range(12))))
            refused, _, writer = await dial(inside, b"1\n")
            assert refused == b"-"
            writer.close()
            _, reader, writer = await dial(inside, b"%d\n" % counting)
            writer.write(b"x" * 100_000)
            writer.write_eof()
            assert await reader.read() == b"100000"
            writer.close()
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0
