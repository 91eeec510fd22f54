"""The local cloud's own way to ask a guest, of a real one."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import uuid
from pathlib import Path

from sbxtui.localcloud.duplex import Duplex
from sbxtui.localcloud.guestcalls import GuestCalls
from tests.support.guest_process import running_guest

# More than a job that waits for its reader may have in its log.
LINES, LINE_BYTES = 100_000, 100
SCRIPT = "import random; r = random.Random(7); [print(f'{r.random():<99}') for _ in range(%d)]; raise SystemExit(3)"


async def dial(port: int) -> Duplex:
    """As a keeper does, without a sandbox in between."""
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return Duplex(sock)


async def test_a_commands_output_comes_whole_though_it_is_longer_than_its_log(tmp_path: Path) -> None:
    said = bytearray()
    async with asyncio.timeout(60), running_guest(tmp_path) as guest:
        job = {"id": str(uuid.uuid4()), "argv": ["python3", "-c", SCRIPT % LINES], "log": "hold"}
        code = await GuestCalls(dial, guest.port).run(job, said.extend)
    drawn = random.Random(7)
    wanted = hashlib.sha256(b"".join(b"%-99s\n" % repr(drawn.random()).encode() for _ in range(LINES)))
    assert (code, len(said), hashlib.sha256(said).digest()) == (3, LINES * LINE_BYTES, wanted.digest())
