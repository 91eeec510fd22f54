"""The Python of sandboxes whose system is a base: its own where that fits, else the one sbx runs on, brought along."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.imagetree import ensure_image_tree
from sbxtui.localcloud.runtimes.base import Interpreter
from sbxtui.localcloud.runtimes.bubblewrap import NAMESPACES, system_arguments
from sbxtui.localcloud.runtimes.bubblewrap_probe import reachable_binary, try_bare
from sbxtui.localcloud.runtimes.interpreter import NOT_COPIED, VERSION, copied_python
from sbxtui.localcloud.runtimes.system_view import TREE

_INSIDE = "/opt/sbx/python"
_PROBE = (
    "import asyncio, ctypes, pty, resource, select, ssl, sys, zlib\n"
    f"sys.path.insert(0, {TREE!r})\n"
    f"if (sys.implementation.cache_tag, sys.maxsize) != ({sys.implementation.cache_tag!r}, {sys.maxsize}):\n"
    "    sys.exit('another version')\n"
    "import blake3, httptools.parser\n"
)
# Those of the C library itself: a system has its own, or cannot run this Python at all.
_C_LIBRARY = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|nsl|anl))\.so.*")
_FOUND = re.compile(r"\s*(\S+) => (/\S+) ")
_LDD_S = 30.0


@cache
def interpreter_in(base: Path, copies_dir: Path) -> Interpreter:
    """The Python of sandboxes of a base. Blocking; asked once in a process for each.

    Raises:
        RuntimeUnavailable: None runs in it.
    """
    tried: dict[str, str] = {}
    for candidate in (*_own(base), _brought(copies_dir)):
        failure = _failure(base, candidate, copies_dir)
        if not failure:
            return candidate
        tried[candidate.executable] = failure
    why = "; ".join(f"{name}: {failure}" for name, failure in tried.items())
    raise RuntimeUnavailable(
        f"no Python {VERSION.removeprefix('python')} runs in the base, and the guest needs one ({why})",
        hint=f"put {VERSION} into the base, or take one with a C library as new as this machine's",
    )


def _own(base: Path) -> Iterable[Interpreter]:
    for folder in ("/usr/bin", "/usr/local/bin"):
        for name in (VERSION, "python3"):
            if os.path.lexists(f"{base}{folder}/{name}"):
                yield Interpreter(f"{folder}/{name}")


def _failure(base: Path, candidate: Interpreter, copies_dir: Path) -> str:
    """Run it there; an empty string, or why it does not run."""
    binary = reachable_binary(copies_dir)
    arguments = [str(binary), *NAMESPACES, *system_arguments(str(base)), "--proc", "/proc", "--dev", "/dev"]
    arguments += ["--ro-bind", str(ensure_image_tree(copies_dir).path), TREE]
    if candidate.prefix:
        arguments += ["--ro-bind", candidate.source, candidate.prefix]
    if candidate.libraries:
        arguments += ["--setenv", "LD_LIBRARY_PATH", candidate.libraries]
    return try_bare([*arguments, "--remount-ro", "/", "--", candidate.executable, "-I", "-S", "-c", _PROBE])


def _brought(copies_dir: Path) -> Interpreter:
    """The Python sbx runs on, in a folder with the libraries it needs beside those of the C library."""
    prefix = Path(sys.base_prefix).resolve()

    def bring(building: Path) -> None:
        executable, library = prefix / "bin" / VERSION, building / "lib" / VERSION
        (building / "bin").mkdir()
        shutil.copy(executable, building / "bin" / VERSION)
        ignore = shutil.ignore_patterns(*NOT_COPIED, "dist-packages", "*.a")
        shutil.copytree(prefix / "lib" / VERSION, library, ignore=ignore, symlinks=False, ignore_dangling_symlinks=True)
        needed = building / "lib" / "needed"
        needed.mkdir()
        for name, source in _needed([executable, *library.rglob("*.so")]).items():
            shutil.copy(source, needed / name)

    folder = copied_python(prefix, copies_dir, bring, kind="brought ")
    return Interpreter(f"{_INSIDE}/bin/{VERSION}", _INSIDE, str(folder), f"{_INSIDE}/lib/needed")


def _needed(programs: Iterable[Path]) -> dict[str, str]:
    """Names of the libraries that programs load, and where they are."""
    command = ["/usr/bin/ldd", *map(str, programs)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_LDD_S, check=False).stdout
    except (OSError, subprocess.SubprocessError) as exc:
        raise RuntimeUnavailable(f"what {VERSION} needs cannot be told: {exc}", hint="`ldd` must work here") from exc
    found = (match for line in said.splitlines() if (match := _FOUND.match(line)))
    return {match[1]: match[2] for match in found if not _C_LIBRARY.fullmatch(match[1])}
