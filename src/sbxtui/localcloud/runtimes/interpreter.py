"""Which Python runs the guest inside a sandbox: the system's where it fits, else the one sbx runs on."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from sbxtui.localcloud.runtimes.base import Interpreter, readable_path
from sbxtui.localcloud.runtimes.reachable import make_readable

_PROBE = (
    "import asyncio, ctypes, pty, resource, select, ssl, sys, zlib; print(sys.implementation.cache_tag, sys.maxsize)"
)
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
NOT_COPIED = ("site-packages", "test", "idlelib", "turtledemo", "__pycache__")


def choose_interpreter(copies_dir: Path, *, is_uid_dropped: bool) -> Interpreter:
    """The Python of sandboxes on this machine. Extension modules of the guest are this interpreter's, so versions
    must match.

    Args:
        copies_dir: Where a copy is put when a dropped uid cannot reach the original.
        is_uid_dropped: Whether the sandbox runs as somebody who is not the caller.
    """
    system = _system_python()
    if system:
        return Interpreter(system)
    prefix = Path(sys.base_prefix).resolve()
    executable = str(prefix / "bin" / VERSION)
    if prefix.is_relative_to("/usr"):
        return Interpreter(executable)
    if not is_uid_dropped or readable_path(prefix):
        return Interpreter(executable, str(prefix), str(prefix))
    return Interpreter(executable, str(prefix), str(_readable_copy(prefix, copies_dir)))


@cache
def _system_python() -> str:
    """A `/usr` Python of our version with the modules the guest needs, or an empty string."""
    wanted = f"{sys.implementation.cache_tag} {sys.maxsize}"
    for candidate in (f"/usr/bin/{VERSION}", "/usr/bin/python3", f"/usr/local/bin/{VERSION}"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            reply = subprocess.run(
                [candidate, "-I", "-S", "-c", _PROBE], capture_output=True, text=True, timeout=10, env={}, check=False
            )
            if reply.stdout.strip() == wanted and Path(candidate).resolve().is_relative_to("/usr"):
                return candidate
    return ""


def _readable_copy(prefix: Path, copies_dir: Path) -> Path:
    def copy(building: Path) -> None:
        for part in ("bin", "lib"):
            ignore = shutil.ignore_patterns(*NOT_COPIED, "*.a")
            shutil.copytree(prefix / part, building / part, symlinks=True, ignore=ignore, dirs_exist_ok=True)

    return copied_python(prefix, copies_dir, copy)


def copied_python(prefix: Path, copies_dir: Path, fill: Callable[[Path], None], *, kind: str = "") -> Path:
    """A folder with a Python of ours that everybody may read. Blocking; made once for each Python and `kind`.

    Args:
        prefix: Of the Python it is made of.
        copies_dir: Where such folders are.
        fill: Puts into an empty folder what shall be there.
        kind: Tells one way to fill it from others; empty, or a word and a blank.
    """
    info = (prefix / "bin" / VERSION).stat()
    told = f"{kind}{prefix} {sys.version} {info.st_size} {info.st_mtime_ns}"
    final = copies_dir / f"python-{hashlib.sha256(told.encode()).hexdigest()[:24]}"
    if final.is_dir():
        return final
    copies_dir.mkdir(parents=True, exist_ok=True)
    copies_dir.chmod(0o711)
    building = Path(tempfile.mkdtemp(dir=copies_dir, prefix=".building-"))
    try:
        fill(building)
        make_readable(building)
        with contextlib.suppress(OSError):
            # Refused when another process was first.
            building.rename(final)
        return final
    finally:
        shutil.rmtree(building, ignore_errors=True)
