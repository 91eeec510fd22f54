"""Which Python runs the guest inside a sandbox: the system's where it fits, else the one sbx runs on."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from sbxtui.localcloud.runtimes.base import Interpreter, readable_path

_PROBE = (
    "import asyncio, ctypes, pty, resource, select, ssl, sys, zlib; print(sys.implementation.cache_tag, sys.maxsize)"
)
_NOT_COPIED = ("site-packages", "test", "idlelib", "turtledemo", "__pycache__")


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
    executable = str(prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")
    if prefix.is_relative_to("/usr"):
        return Interpreter(executable)
    if not is_uid_dropped or readable_path(prefix):
        return Interpreter(executable, str(prefix), str(prefix))
    return Interpreter(executable, str(prefix), str(_readable_copy(prefix, copies_dir)))


@cache
def _system_python() -> str:
    """A `/usr` Python of our version with the modules the guest needs, or an empty string."""
    wanted = f"{sys.implementation.cache_tag} {sys.maxsize}"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (f"/usr/bin/python{version}", "/usr/bin/python3", f"/usr/local/bin/python{version}"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            reply = subprocess.run(
                [candidate, "-I", "-S", "-c", _PROBE], capture_output=True, text=True, timeout=10, env={}, check=False
            )
            if reply.stdout.strip() == wanted and Path(candidate).resolve().is_relative_to("/usr"):
                return candidate
    return ""


def _readable_copy(prefix: Path, copies_dir: Path) -> Path:
    executable = prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    info = executable.stat()
    digest = hashlib.sha256(f"{prefix} {sys.version} {info.st_size} {info.st_mtime_ns}".encode()).hexdigest()[:24]
    final = copies_dir / f"python-{digest}"
    if final.is_dir():
        return final
    copies_dir.mkdir(parents=True, exist_ok=True)
    copies_dir.chmod(0o711)
    building = Path(tempfile.mkdtemp(dir=copies_dir, prefix=".building-"))
    try:
        for part in ("bin", "lib"):
            ignore = shutil.ignore_patterns(*_NOT_COPIED, "*.a")
            shutil.copytree(prefix / part, building / part, symlinks=True, ignore=ignore, dirs_exist_ok=True)
        for folder, _, names in os.walk(building):
            Path(folder).chmod(0o755)
            for name in names:
                file = Path(folder) / name
                if not file.is_symlink():
                    file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
        with contextlib.suppress(OSError):
            building.rename(final)
        return final
    finally:
        shutil.rmtree(building, ignore_errors=True)
