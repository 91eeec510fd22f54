"""The root of a base: unpacked or copied once, prepared for what a sandbox has in it, and never written to again."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sbxtui.localcloud.keeper_place import remove_trees, run_program
from sbxtui.localcloud.runtimes.system_view import ETC_OF_OURS

# Where a sandbox has something of its own over what its system has there.
_FOLDERS = ("etc", "opt", "var/lib", "var/cache")
_USERS = ("/etc/passwd", "/etc/group")


class BadRoot(ValueError):
    """It is no root of a system; the words say why."""


def make_root(source: Path, target: Path) -> None:
    """Copy a folder, or unpack a tar (also a packed one), as a prepared root. Blocking.

    Devices are left out; everybody may pass through it afterwards.

    Raises:
        BadRoot: It cannot be read, or is no root.
        OSError: The disk is full.
    """
    building = target.with_name(f".{target.name}.part")
    remove_trees([building])
    building.mkdir(mode=0o755, parents=True)
    building.chmod(0o755)
    try:
        if run_program(_command(source, building)) != 0:
            raise BadRoot(f"{source} cannot be read whole: it is damaged, not yours to read, or the disk is full")
        building.chmod(0o755)
        if os.geteuid() == 0:
            # All of it is one user's in a sandbox: what others own could not even be replaced there.
            run_program(["/bin/chown", "-hR", "0:0", "--", str(building)])
        if not _has_shell(building):
            raise BadRoot(f"{source} has no /bin/sh: it is no root of a system")
        prepare_root(building)
        building.replace(target)
    except BaseException:
        remove_trees([building])
        raise


def prepare_root(root: Path) -> None:
    """Make what a sandbox needs in a root. Links in it are never followed: they may lead anywhere on this machine."""
    for path in _FOLDERS:
        _folder(root, path.split("/"))
    _link(root / "var" / "tmp", "/tmp")
    for path, text in ETC_OF_OURS.items():
        file = root / path[1:]
        if path == "/etc/nsswitch.conf" and file.is_file() and not file.is_symlink():
            continue
        _write(file, _merged(file, text) if path in _USERS else text)
    for name in ("hosts", "hostname"):
        _write(root / "etc" / name, "")


def _command(source: Path, target: Path) -> list[str]:
    if source.is_dir():
        return ["/bin/cp", "-a", "-x", "--reflink=auto", "--", f"{source}/.", str(target)]
    left_out = ["--exclude=./dev/*", "--exclude=dev/*"]
    return ["/bin/tar", "-x", "-p", "-f", str(source), "-C", str(target), "--numeric-owner", *left_out]


def _has_shell(root: Path) -> bool:
    """Whether there is a shell, wherever links inside the root lead."""
    return any(os.path.lexists(root / name / "sh") for name in ("bin", "usr/bin"))


def _folder(root: Path, parts: Sequence[str]) -> None:
    path = root
    for part in parts:
        path = path / part
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            path.mkdir(mode=0o755)
            path.chmod(0o755)


def _link(path: Path, target: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _write(file: Path, text: str) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)
    file.write_text(text)
    file.chmod(0o644)


def _merged(file: Path, ours: str) -> str:
    """Users or groups of a base behind ours, whose names and numbers are taken."""
    lines = ours.splitlines()
    taken = {line.split(":")[0] for line in lines}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if not file.is_symlink():
            lines += [line for line in file.read_text().splitlines() if line.split(":")[0] not in taken]
    return "\n".join([*lines, ""])
