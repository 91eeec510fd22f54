"""Programs of this machine where the user a sandbox runs as can run them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from sbxtui.localcloud.runtimes.base import readable_path
from sbxtui.localcloud.runtimes.gvisor_choice import digest_of


def reachable_copy(name: str, program: Path, beside: Iterable[Path], copies_dir: Path) -> Path:
    """The program itself, or, where a dropped uid could not reach it, a copy called `name` with what lies beside it.

    Raises:
        OSError: It cannot be read, or `copies_dir` not written.
    """
    if os.geteuid() != 0 or readable_path(program):
        return program

    def fill(folder: Path) -> None:
        for file in [program, *beside]:
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
                (folder / file.name).chmod(0o755)
        (folder / program.name).replace(folder / name)

    return made_once(copies_dir / f"{name}-{digest_of(program)[:24]}", fill) / name


def make_copies_dir(copies_dir: Path) -> None:
    """A folder of such copies, through which everybody may pass."""
    copies_dir.mkdir(parents=True, exist_ok=True)
    copies_dir.chmod(0o711)


def made_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """A folder that everybody may read; `fill` fills it where it is not there yet, and it is there whole or not at all.

    Raises:
        OSError: The disk refuses, or `fill` did.
    """
    if not folder.is_dir():
        make_copies_dir(folder.parent)
        building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".building-"))
        try:
            fill(building)
            make_readable(building)
            with contextlib.suppress(OSError):
                # Another process may have been first.
                building.rename(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return folder


def boot_id_here() -> str:
    """Tells one start of this machine from another; empty where it is not told."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def make_readable(top: Path) -> None:
    """Let everybody read a folder and run the programs in it, links left as they are."""
    for folder, _, names in os.walk(top):
        Path(folder).chmod(0o755)
        for name in names:
            file = Path(folder) / name
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
