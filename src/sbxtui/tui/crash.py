"""Crash reports: where it happened and what was said, never values of variables, so that no secret can be in them."""

from __future__ import annotations

import platform
import re
import traceback
from datetime import UTC, datetime
from pathlib import Path

from sbxtui._version import __version__
from sbxtui.core.errors import SbxError
from sbxtui.core.text import harmless, iso
from sbxtui.home import Home, private_dir

# Tokens, keys and signatures are long runs of these; words are shorter or have dots and spaces between them.
# Where it happened is no secret, however long the folders' names are.
_PLACE = re.compile(r'^ *File ".*", line \d+, in \S+$')
_SECRET_LIKE = re.compile(r"[A-Za-z0-9+/=_-]{32,}|(?:AKIA|ASIA)[A-Z0-9]{12,}")


def write_crash_report(home: Home, error: BaseException, *, now: datetime | None = None) -> Path | None:
    """Write a report into the home's log folder; returns its file, None when it could not be written."""
    now = now or datetime.now(UTC)
    try:
        folder = private_dir(home.log_dir)
        file = folder / f"crash-{now:%Y%m%dT%H%M%S%f}.txt"
        file.touch(mode=0o600)
        file.write_text(crash_text(error, now), "utf-8")
    except (OSError, SbxError):
        return None
    return file


def crash_text(error: BaseException, now: datetime) -> str:
    """The report: versions and the chain of tracebacks without values; what looks like a secret is left out."""
    frames = harmless("".join(traceback.TracebackException.from_exception(error, capture_locals=False).format()))
    said = [line if _PLACE.match(line) else _SECRET_LIKE.sub("[left out]", line) for line in frames.split("\n")]
    head = f"sbx {__version__}, Python {platform.python_version()}, {platform.system()}, {iso(now)}\n\n"
    return head + "\n".join(said)
