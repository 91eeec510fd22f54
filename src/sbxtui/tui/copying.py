"""Copying out of the dashboard: by the terminal's clipboard sequence where it fits, and always into a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sbxtui.core.errors import SbxError
from sbxtui.home import Home, private_dir

# What terminals take: 100,000 bytes of sequence, of which base64 leaves three quarters.
MAX_SEQUENCE_BYTES = 74_994


def fits_sequence(text: str) -> bool:
    """Whether terminals take `text` by OSC 52; longer ones are cut or dropped without a word."""
    return len(text.encode("utf-8", "replace")) <= MAX_SEQUENCE_BYTES


def copied_file(home: Home) -> Path:
    """Where the last copied text is kept."""
    return home.cache_dir / "copied.txt"


def keep_copy(home: Home, text: str) -> Path:
    """Write `text` to the file of copies, readable by this user alone; blocking.

    Raises:
        SbxError: It cannot be written.
    """
    file = copied_file(home)
    write_private(file, text)
    return file


def write_private(file: Path, text: str) -> None:
    """Put `text` in the place of a file, readable by this user alone; never half of it. Blocking.

    Raises:
        SbxError: It cannot be written.
    """
    try:
        folder = private_dir(file.parent)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{file.stem}.")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as out:
            out.write(text)
        Path(temporary).replace(file)
    except OSError as exc:
        raise SbxError(
            f"cannot write {file}: {exc.strerror or exc}", hint="check the disk and its permissions"
        ) from exc


def copied_words(what: str, text: str, file: Path | None) -> str:
    """What to tell after copying: how much, by which ways."""
    lines = text.count("\n") + 1
    size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
    ways = ["your terminal was asked (OSC 52)"] if fits_sequence(text) else ["too long for the terminal's clipboard"]
    if file is not None:
        ways.append(f"also in {file}")
    return f"copied {what}, {size}: " + "; ".join(ways)
