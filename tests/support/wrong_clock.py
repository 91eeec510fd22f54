"""A clock that is wrong by what a test says, for processes that are started with its environment; nobody else's."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_suffix(".c")
_SECONDS = struct.Struct("d")


@dataclass(frozen=True, slots=True)
class WrongClock:
    """`env` is for the processes whose clock it is; they may set it, unless `WRONG_CLOCK_FIXED` is added."""

    file: Path
    env: Mapping[str, str]

    @property
    def ahead_s(self) -> float:
        """How far it is ahead of this machine's now."""
        (ahead_s,) = _SECONDS.unpack(self.file.read_bytes())
        return float(ahead_s)

    def put(self, ahead_s: float) -> None:
        """Make it wrong."""
        with self.file.open("r+b") as out:
            out.write(_SECONDS.pack(ahead_s))


def wrong_clock(folder: Path, ahead_s: float) -> WrongClock:
    """A clock in a folder of the test; skips the test where nothing compiles it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library, file = folder / "wrong_clock.so", folder / "wrong_clock"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, _SOURCE, "-lm"], check=True, timeout=60)
    file.write_bytes(_SECONDS.pack(ahead_s))
    return WrongClock(file, {"LD_PRELOAD": str(library), "WRONG_CLOCK": str(file)})
