"""Starting the program of a job: what to start, as bytes between processes, and the start itself."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from typing import Any

# Linux's limit of one argument or one line of the environment, with its NUL.
_STRING_BYTES_MAX = 128 * 1024


class SpawnFailed(Exception):
    """The program was not started. `stage` says what was wrong: `program`, `cwd`, `argv` or `spawn`."""

    def __init__(self, stage: str, error_number: int) -> None:
        super().__init__(f"{stage}: {os.strerror(error_number)}")
        self.stage = stage
        self.error_number = error_number


class Spec:
    """What to start. Strings are bytes already; `uid` None keeps the guest's own user."""

    __slots__ = ("argv", "cwd", "env", "gid", "groups", "uid")

    def __init__(
        self,
        argv: list[bytes],
        env: dict[bytes, bytes],
        cwd: bytes,
        *,
        uid: int | None = None,
        gid: int | None = None,
        groups: list[int] | None = None,
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.uid = uid
        self.gid = gid
        self.groups = groups

    def to_bytes(self) -> bytes:
        """For another process."""
        value = {
            "argv": [part.decode("latin-1") for part in self.argv],
            "env": [[key.decode("latin-1"), value.decode("latin-1")] for key, value in self.env.items()],
            "cwd": self.cwd.decode("latin-1"),
            "uid": self.uid,
            "gid": self.gid,
            "groups": self.groups,
        }
        return json.dumps(value).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Spec:
        """Undo `to_bytes`."""
        value: dict[str, Any] = json.loads(data)
        return cls(
            [part.encode("latin-1") for part in value["argv"]],
            {key.encode("latin-1"): text.encode("latin-1") for key, text in value["env"]},
            value["cwd"].encode("latin-1"),
            uid=value["uid"],
            gid=value["gid"],
            groups=value["groups"],
        )


def start(spec: Spec, stdin: int, stdout: int, stderr: int) -> int:
    """Start the program in a session of its own and return its pid, which the caller must wait for.

    Call it only in a process with one thread: changing the user makes CPython fork instead of vfork.

    Raises:
        SpawnFailed: It was not started; nothing is left of the attempt.
    """
    _check_cwd(spec)
    _check_lengths(spec)
    try:
        process = subprocess.Popen(
            spec.argv,
            env=spec.env,
            cwd=spec.cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            user=spec.uid,
            group=spec.gid,
            extra_groups=spec.groups,
        )
    except OSError as exc:
        raise SpawnFailed(_stage_of(exc, spec), _reason_of(exc, spec)) from exc
    except subprocess.SubprocessError as exc:
        raise SpawnFailed("spawn", errno.EPERM) from exc
    # The one reaper is the caller's loop: with a return code set, Popen never waits by itself.
    process.returncode = 0
    return process.pid


def _check_cwd(spec: Spec) -> None:
    try:
        if not os.path.isdir(spec.cwd):  # noqa: PTH112 - pathlib is a large import for a process this small
            os.stat(spec.cwd)  # noqa: PTH116 - says why
            raise SpawnFailed("cwd", errno.ENOTDIR)
    except OSError as exc:
        raise SpawnFailed("cwd", exc.errno or errno.EIO) from exc


def _check_lengths(spec: Spec) -> None:
    # Said here, because exec's own answer may be hidden behind what an earlier folder of PATH answered.
    strings = (*spec.argv, *(key + b"=" + value for key, value in spec.env.items()))
    if any(len(text) >= _STRING_BYTES_MAX for text in strings):
        raise SpawnFailed("argv", errno.E2BIG)


def _reason_of(exc: OSError, spec: Spec) -> int:
    """The error, but a folder of PATH that may not be searched does not hide that the program is nowhere."""
    name = spec.argv[0]
    if exc.errno == errno.EACCES and b"/" not in name:
        folders = spec.env.get(b"PATH", b"").split(b":")
        if not any(os.path.exists(os.path.join(folder, name)) for folder in folders):  # noqa: PTH110, PTH118 - as above
            return errno.ENOENT
    return exc.errno or errno.EIO


def _stage_of(exc: OSError, spec: Spec) -> str:
    if exc.errno == errno.E2BIG:
        return "argv"
    if exc.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EPERM):
        return "spawn"
    # CPython names the file that failed: the cwd for what went wrong before exec.
    is_cwd = exc.filename is not None and os.fsencode(exc.filename) == spec.cwd and spec.argv[0] != spec.cwd
    return "cwd" if is_cwd else "program"
