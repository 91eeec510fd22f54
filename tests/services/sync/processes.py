"""Syncs in processes of their own, for tests that stop, limit or kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TREE = Path(__file__).resolve().parents[3]
_END_S = 60


@dataclass(frozen=True, slots=True)
class Started:
    """A process that is talked to by lines."""

    process: subprocess.Popen[str]

    def tell(self, line: str) -> None:
        """Write a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """The next line it says.

        Raises:
            EOFError: It ended.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"it ended with {self.process.wait(_END_S)}")
        return line.strip()


@contextmanager
def started(module: str, root: Path, *words: str, under: Sequence[str] = ()) -> Iterator[Started]:
    """A module of this package on two folders below `root`; afterwards it and all it forked are gone.

    Args:
        module: Its name.
        root: Of the folders.
        words: More arguments.
        under: What to run it under.
    """
    command = [*under, sys.executable, "-m", f"tests.services.sync.{module}", os.fspath(root), *words]
    process = subprocess.Popen(
        command, cwd=_TREE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield Started(process)
    finally:
        # Also one that was stopped.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=_END_S)
