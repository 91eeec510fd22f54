"""The root of a sandbox with a kernel of its own: a folder of small files, and of places where all else is mounted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

# Programs expect them.
_EMPTY = ("/var/lib", "/var/cache")


def write_skeleton(
    root: Path, *, folders: Iterable[str], binds: Mapping[str, str], texts: Mapping[str, str], links: Mapping[str, str]
) -> None:
    """Make it. `hand_over` it then.

    Args:
        root: The folder.
        folders: Paths inside that shall be there.
        binds: Paths inside, and what of the host will be there: an empty folder or file is made for each.
        texts: Files by their paths inside.
        links: Links by their paths inside.
    """
    places = [path for path, source in binds.items() if Path(source).is_dir()]
    for name in (*_EMPTY, *folders, *places):
        (root / name[1:]).mkdir(parents=True, exist_ok=True)
    for path, text in {**dict.fromkeys(binds.keys() - set(places), ""), **texts}.items():
        target = root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o644)
    for path, link in {"/var/tmp": "/tmp", **links}.items():
        if not (root / path[1:]).is_symlink():
            (root / path[1:]).symlink_to(link)


def hand_over(top: Path, owner: int | None) -> None:
    """Let everybody look into all folders below, whatever the umask, and give all of it to `owner`, if there is one."""
    for folder, _, names in os.walk(top):
        Path(folder).chmod(0o755)
        if owner is not None:
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                os.chown(path, owner, owner, follow_symlinks=False)
