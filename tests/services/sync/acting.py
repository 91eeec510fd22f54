"""`python -m tests.services.sync.acting ROOT MODE`: both ends of a sync, in a new process for each line it is given.

Each process says its number, then a word at every point at which it may be killed; when it is gone, `ended` is said.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from sbxtui.services.sync.model import Mode, Side
from sbxtui.services.sync.resolve import resolve
from sbxtui.services.sync.review import review, take_over
from tests.services.sync.pairs import TwoFolders, two_folders


def main() -> None:
    """Serve until there are no more lines."""
    root, mode = Path(sys.argv[1]), Mode(sys.argv[2])
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            _tell(str(os.getpid()))
            asyncio.run(_act(root, mode))
        os.waitpid(pid, 0)
        _tell("ended")


def _tell(word: str) -> None:
    os.write(1, f"{word}\n".encode())


async def _act(root: Path, mode: Mode) -> None:
    with two_folders(root, mode=mode, fault=_tell) as two:
        while True:
            await two.cycle.compare()
            await _look(two)


async def _look(two: TwoFolders) -> None:
    """As a person does: take everything over, and decide the first conflict for this machine."""
    with two.intake() as intake:
        reviewed = await review(two.pair)
        if not reviewed.halts:
            await take_over(two.pair, intake, reviewed, lambda size_bytes: None)
        for conflict in reviewed.conflicts[:1]:
            await resolve(two.pair, intake, conflict.path, Side.LOCAL)


if __name__ == "__main__":
    main()
