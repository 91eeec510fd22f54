"""Jobs as every layer passes them around: commands that a guest runs, their output and how they ended."""

from __future__ import annotations

import signal
from datetime import datetime
from enum import StrEnum

from sbxtui.core.errors import UsageError
from sbxtui.core.model import ContextName, ExecResult, SandboxId
from sbxtui.core.values import dataclass

TIMED_OUT_CODE = 124
# Who began a job that took so long may look elsewhere by its end.
LONG_S = 60.0
_SIGNALLED = 128
_MAX_SIGNAL = 64


class JobState(StrEnum):
    """What is known of a job; UNKNOWN when its guest could not be asked, or knows it no more."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class Channel(StrEnum):
    """Where bytes of a job's log came from; PTY is both at once, as a terminal shows them."""

    OUT = "out"
    ERR = "err"
    PTY = "pty"


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """The terminal a job runs on. `term` is what it finds in TERM."""

    cols: int = 80
    rows: int = 24
    term: str = "xterm-256color"


@dataclass(frozen=True, slots=True)
class JobExit:
    """How a job ended. `code` is the command's own, None when signal `signal` ended it."""

    code: int | None
    signal: int = 0
    timed_out: bool = False
    oom: bool = False
    lingering: bool = False
    duration_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """As a shell tells it: 124 timed out, 128+n ended by signal n."""
        if self.timed_out:
            return TIMED_OUT_CODE
        return _SIGNALLED + self.signal if self.code is None else self.code

    def as_result(self, stdout: bytes = b"", stderr: bytes = b"", *, truncated: bool = False) -> ExecResult:
        """The same with the output that was kept."""
        return ExecResult(
            exit_code=self.exit_code,
            stdout=stdout,
            stderr=stderr,
            timed_out=self.timed_out,
            signal=self.signal,
            duration_s=self.duration_s,
            lingering=self.lingering,
            truncated=truncated,
            oom=self.oom,
        )


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Bytes of a job's log, from `cursor` on."""

    cursor: int
    channel: Channel
    data: bytes


@dataclass(frozen=True, slots=True)
class JobGap:
    """The log's bytes from `start` to `end` are no longer kept."""

    start: int
    end: int


JobPiece = JobOutput | JobGap | JobExit


@dataclass(frozen=True, slots=True)
class Job:
    """A command in a sandbox. `sandbox` is the sandbox's name, empty when nothing has one here any more.

    `command` is shown to people only: one line, maybe cut. `cursor` is the end of its log as last told. `shell` is
    the pseudo-shell whose line it is; empty for others, and for what only the index of this home knows.
    `awaits_input`: its guest takes it for waiting until somebody types.
    """

    context: ContextName
    sandbox_id: SandboxId
    id: str
    boot_id: str
    command: str
    actor: str
    created_at: datetime
    sandbox: str = ""
    label: str = ""
    shell: str = ""
    state: JobState = JobState.RUNNING
    has_terminal: bool = False
    has_stdin: bool = False
    exit: JobExit | None = None
    ended_at: datetime | None = None
    cursor: int = 0
    stdin_accepted: int = 0
    awaits_input: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it is known to have ended."""
        return self.state is JobState.EXITED


def program_of(command: str) -> str:
    """The program that a command line begins with. Its other words, and variables before it, may be secrets."""
    return next((word for word in command.split(" ") if "=" not in word), "")


def signal_name(text: str) -> str:
    """A signal as guests take it: `TERM` for `term`, `SIGTERM`; numbers stay numbers.

    Raises:
        UsageError: There is no such signal.
    """
    name = text.strip().upper().removeprefix("SIG")
    if name.isascii() and name.isdecimal() and 1 <= int(name) <= _MAX_SIGNAL:
        return name
    if name and f"SIG{name}" in signal.Signals.__members__:
        return name
    raise UsageError(f"there is no signal `{text}`", hint="like TERM, INT, HUP, KILL, or a number from 1 to 64")
