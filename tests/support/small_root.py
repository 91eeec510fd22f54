"""A root of a system that is as small as can be: a shell, a few programs, the C library, and no Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_C_LIBRARY = ("pthread", "dl", "rt", "util", "m", "resolv")
PROGRAMS = ("sh", "cat", "ls", "mkdir", "touch")
_LIBRARY = re.compile(r"(?:\S+ => )?(/\S+) \(0x")


def make_small_root(root: Path, marker: str) -> Path:
    """Make one, with a text in /usr/share/marker; the root."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("etc", "usr/share", "proc", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "usr" / "share" / "marker").write_text(f"{marker}\n")
    programs = {name: Path(shutil.which(name) or "").resolve() for name in PROGRAMS}
    for name, program in programs.items():
        shutil.copy(program, root / "usr" / "bin" / name)
    found = _libraries([*programs.values(), Path(sys.executable).resolve()])
    # What older programs still name of the C library.
    folder = next(Path(library).parent for library in found if library.endswith("/libc.so.6"))
    found |= {str(path) for name in _C_LIBRARY for path in folder.glob(f"lib{name}.so.[0-9]")}
    for library in found:
        target = root / "usr" / library.lstrip("/").removeprefix("usr/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    return root


def _libraries(programs: Iterable[Path]) -> set[str]:
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    return set(_LIBRARY.findall(said))
