"""What a pseudo-shell keeps from line to line, how a line gets it, and how it gives it back.

A line runs in a shell of its own that starts with the kept folder and the kept exported variables, and as its last act
writes both to a file that only the guest reads. Functions, aliases, options and variables that are not exported end
with their line.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field

ENV_BYTES_MAX = 128 * 1024
_FILE_BYTES = 2 * ENV_BYTES_MAX
_END = b"\0=\0"
# Of each shell's own making.
_NOT_KEPT = ("_", "SHLVL", "PWD", "OLDPWD")
_NOT_GIVEN_BACK = "the line did not give its state back, as after exec or a kill"

# Bash takes a number nobody else uses; sh has one digit only.
_DESCRIPTORS = {"bash": 198, "sh": 9}
# On one line, so that what the shell says of a line counts from 1.
_WRAPPER = (
    "exec {fd}>&3 3>&-; "
    "__sbx_save() {{ __sbx_status=$?; {{ set +euxvf; }} 2>/dev/null; "
    '[ -n "${{__sbx_done-}}" ] && return $__sbx_status; __sbx_done=1; '
    "{{ printf '%s\\0' \"$PWD\" \"${{OLDPWD-}}\" && command -p env -0 && printf '=\\0'; }} >&{fd} 2>/dev/null; "
    "return $__sbx_status; }}; "
    "trap __sbx_save EXIT; "
    '[ -z "$2" ] || printf \'sbx: %s\\n\' "$2" >&2; '
    '__sbx_line=$1; set --; eval "$__sbx_line"; __sbx_save; exit $__sbx_status'
)


@dataclass(frozen=True, slots=True)
class ShellState:
    """A folder and the exported variables. Bytes that are no text are kept as surrogates."""

    cwd: str
    env: dict[str, str] = field(repr=False)
    old_cwd: str = ""

    def variables(self, cwd: str) -> dict[str, str]:
        """The environment of a line that starts in `cwd`."""
        old = {"OLDPWD": self.old_cwd} if self.old_cwd else {}
        return {**self.env, "PWD": cwd, **old}


class NotGivenBack(Exception):
    """The state after a line is not known or not kept; the text says why."""


def command_of(shell: str, line: str, *, is_first: bool, note: str = "") -> tuple[str, ...]:
    """How to run a line. The first of a state is a login shell's, which sets up what profiles set up.

    Args:
        shell: Path of bash or sh.
        line: What was typed.
        is_first: Whether no line gave its state back yet.
        note: To be said before the line runs.
    """
    kind = shell.rpartition("/")[2]
    login = ("-l",) if is_first else ()
    return (shell, *login, "-c", _WRAPPER.format(fd=_DESCRIPTORS[kind]), kind, line, note)


def new_file(name: str) -> int:
    """The file a line's shell writes to; it cannot grow, whoever writes.

    Raises:
        OSError: There is no memory, or no descriptor.
    """
    fd = os.memfd_create(f"sbx-shell-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, _FILE_BYTES)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    except OSError:
        os.close(fd)
        raise
    return fd


def read_back(fd: int) -> ShellState:
    """What a line wrote.

    Raises:
        NotGivenBack: Nothing, not all, nonsense, or too much.
    """
    written, end, _rest = os.pread(fd, _FILE_BYTES, 0).partition(_END)
    cwd, *records = written.split(b"\0")
    if not end or not records or not cwd.startswith(b"/"):
        raise NotGivenBack(_NOT_GIVEN_BACK)
    old_cwd, *pairs = (_text(record) for record in records)
    if sum(map(len, records)) > ENV_BYTES_MAX:
        raise NotGivenBack(f"the exported variables are larger than {ENV_BYTES_MAX // 1024} KiB")
    env: dict[str, str] = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        # Exported functions come as variables whose names no variable can have.
        if is_pair and name and "%" not in name and "(" not in name and name not in _NOT_KEPT:
            env[name] = value
    return ShellState(_text(cwd), env, old_cwd)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
