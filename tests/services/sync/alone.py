"""`python -m tests.services.sync.alone ROOT URL`: compares a folder with a guest's, a turn for each line.

It says how long until the first figure of how far it is, how many changes it made, and its memory after and at most.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from pathlib import Path

from sbxtui.guest.client import GuestClient
from sbxtui.services.sync.cycle import Cycle
from sbxtui.services.sync.folder import Folder
from sbxtui.services.sync.model import Mode
from sbxtui.services.sync.pair import Pair
from sbxtui.services.sync.status import Status
from sbxtui.store.ancestors import Ancestors


async def main(root: Path, url: str) -> None:
    """Serve until there are no more lines."""
    here = Folder(os.fspath(root / "h" / "here"))
    ancestors = Ancestors.open(root / "state" / "link.db")
    async with GuestClient(url, None) as guest:
        pair = Pair(here, guest.tree(""), ancestors, Mode.PUSH)
        while await asyncio.to_thread(sys.stdin.readline):
            await _turn(pair)
    ancestors.close()
    here.close()


async def _turn(pair: Pair) -> None:
    began_s, first_s, warning = time.monotonic(), 0.0, ""

    def told(status: Status) -> None:
        nonlocal first_s, warning
        warning = warning or status.words
        if status.seen and not first_s:
            first_s = time.monotonic() - began_s

    cycle = Cycle(pair, told)
    await cycle.compare()
    gc.collect()
    figures = (f"{first_s:.2f}", cycle.status.pushed, memory_kib("self", "VmRSS"), memory_kib("self", "VmHWM"), warning)
    os.write(1, (" ".join(map(str, figures)) + "\n").encode())


def memory_kib(process: str, name: str) -> int:
    """What the kernel says of a process's memory."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
