"""The program that leads others through the proxy: stdin and stdout, or a port of the sandbox's own."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from tests.guest.test_bridge import WAIT_S
from tests.localcloud.way_out import WayOut, way_out

PROGRAM = Path(__file__).parents[2] / "guest" / "sbxguest" / "connect.py"
ALLOWED = "allow=example.com:443"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def _started(way: WayOut, *words: str, stdin: int = PIPE) -> asyncio.subprocess.Process:
    env = {"HTTPS_PROXY": f"http://job-7:job@127.0.0.1:{way.port}"}
    command = (sys.executable, "-I", str(PROGRAM), *words)
    return await asyncio.create_subprocess_exec(*command, env=env, stdin=stdin, stdout=PIPE, stderr=PIPE)


async def test_stdin_and_stdout_are_the_connection(tmp_path: Path) -> None:
    async with way_out(tmp_path, ALLOWED, _echo) as way, asyncio.timeout(2 * WAIT_S):
        program = await _started(way, "example.com", "443")
        content = bytes(range(256)) * 4_000
        out, err = await program.communicate(content)
        assert (program.returncode, out == content, err) == (0, True, b"")
        assert way.log.after(0)[0]["job"] == "job-7"


async def test_a_refusal_is_told_in_the_proxys_words(tmp_path: Path) -> None:
    async with way_out(tmp_path, ALLOWED, _echo) as way, asyncio.timeout(2 * WAIT_S):
        program = await _started(way, "example.org", "443")
        out, err = await program.communicate()
        assert (program.returncode, out) == (1, b"")
        assert b"sbx-connect: 403 sbx: example.org:443 is not allowed" in err


async def test_a_port_of_its_own_leads_every_connection_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    async with way_out(tmp_path, ALLOWED, _echo) as way, asyncio.timeout(2 * WAIT_S):
        program = await _started(way, "example.com", "443", "--listen", str(port), stdin=DEVNULL)
        try:
            assert program.stderr is not None
            assert b"is example.com:443" in await program.stderr.readline()
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"ping")
                writer.write_eof()
                assert await reader.read() == b"ping"
                writer.close()
        finally:
            program.kill()
            await program.wait()
