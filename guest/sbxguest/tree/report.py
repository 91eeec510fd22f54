"""What packing and unpacking say: errors that end them, problems that do not."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

# A tree of a million unreadable files must not become a report of a million lines.
MAX_PROBLEMS = 100
LEFT_OUT_KEY = "SBX.left_out"
TEMP_PREFIX = ".sbx-put-"

_CODES = {
    errno.ENOENT: "file_not_found",
    errno.ENOTDIR: "not_a_directory",
    errno.ELOOP: "not_a_directory",
    errno.EISDIR: "is_a_directory",
    errno.EEXIST: "file_exists",
    errno.ENOTEMPTY: "not_empty",
    errno.EACCES: "access_denied",
    errno.EPERM: "access_denied",
    errno.EROFS: "access_denied",
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EFBIG: "disk_full",
    errno.ENAMETOOLONG: "bad_path",
}


class TreeError(Exception):
    """The whole tree failed. `code` is one word for programs: `unsafe_path`, `bad_archive`, `disk_full`, `changed` …"""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Problem:
    """One entry that was left out, and why."""

    path: str
    code: str


@dataclass(frozen=True, slots=True)
class TreeReport:
    """What was unpacked. `problems` holds at most `MAX_PROBLEMS` of the `problem_count` there were."""

    files: int
    folders: int
    links: int
    size_bytes: int
    problems: tuple[Problem, ...]
    problem_count: int


def code_of(exc: OSError) -> str:
    """The word for a failed system call."""
    return _CODES.get(exc.errno or 0, "io_error")


def shown(path: str) -> str:
    """A path as an error message may hold it: valid text, no control characters."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
