"""What a word that was typed may become: names in the sandbox's folders. Bounded, whatever the folder holds."""

from __future__ import annotations

import os
from collections.abc import Mapping

from sbxguest import boundary
from sbxguest.fileops import FileError

NAMES_MAX = 500
_SCANNED_MAX = 20_000


def complete_path(word: str, cwd: str, home: str, root: str, limit: int) -> dict[str, object]:
    """Names that begin as the last part of `word` does. Blocks on the disk.

    Returns:
        `base`, the part of the word before the names; `matches` of {name, is_folder}; `is_whole`: these are all.

    Raises:
        FileError: The word leads out of the sandbox.
    """
    base, prefix = word[: word.rfind("/") + 1], word[word.rfind("/") + 1 :]
    folder = os.path.join(cwd, home + base[1:] if base.startswith("~/") and home else base)  # noqa: PTH118
    if not boundary.is_below(folder, root):
        raise FileError("outside", 403, f"`{base}` leads out of the sandbox")
    names, is_whole = _scan(folder, prefix)
    names.sort()
    matches = [{"name": name, "is_folder": is_folder} for name, is_folder in names[:limit]]
    return {"word": word, "base": base, "matches": matches, "is_whole": is_whole and len(names) <= limit}


def complete_command(word: str, env: Mapping[str, str], limit: int) -> dict[str, object]:
    """Programs on the PATH that begin so; else as `complete_path`. Blocks on the disk."""
    found: set[str] = set()
    is_whole = True
    for folder in env.get("PATH", "").split(":"):
        names, is_all = _scan(folder, word) if folder.startswith("/") else ([], True)
        is_whole = is_whole and is_all
        found |= {name for name, is_folder in names if not is_folder and os.access(f"{folder}/{name}", os.X_OK)}
    matches = [{"name": name, "is_folder": False} for name in sorted(found)[:limit]]
    return {"word": word, "base": "", "matches": matches, "is_whole": is_whole and len(found) <= limit}


def _scan(folder: str, prefix: str) -> tuple[list[tuple[str, bool]], bool]:
    """Names and whether each is a folder, links followed; hidden ones only when asked for. And whether it is all."""
    names: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= _SCANNED_MAX:
                    return names, False
                if entry.name.startswith(prefix) and (prefix or not entry.name.startswith(".")):
                    names.append((entry.name, _is_folder(entry)))
    except OSError:
        return names, True
    return names, True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
