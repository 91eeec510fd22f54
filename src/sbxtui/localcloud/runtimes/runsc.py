"""Calling runsc for one sandbox: the flags all calls share, and the verbs a keeper needs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.runtimes.launch import Launch, launch

CONTAINER = "sbx"
PLATFORMS = ("systrap", "ptrace")
_CALL_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Runsc:
    """One sandbox's runsc. `state_dir` is private to it; `uid`, `gid` as in `StartRequest`, `tools_dir` in `Bundle`."""

    program: str
    platform: str
    state_dir: Path
    log_fd: int
    uid: int | None
    gid: int | None
    tools_dir: Path

    @property
    def pid_file(self) -> Path:
        """Where runsc writes the sandbox's first process of the host."""
        return self.state_dir / "pid"

    def argv(self, *words: str) -> list[str]:
        """A command line; the same flags in every call, because the sandbox's state depends on them."""
        return ["runsc", *common_flags(self.state_dir, self.platform), *words]

    def spawn(self, *words: str, prepare: Callable[[], None] = lambda: None) -> int:
        """Start a call and return its pid; the caller reaps it."""
        env: Mapping[str, str] = {"PATH": str(self.tools_dir)}
        return launch(Launch(self.program, self.argv(*words), env, self.log_fd, self.uid, self.gid, prepare))

    def signal(self, number: signal.Signals) -> None:
        """Signal the sandbox's first process, without waiting: the caller reaps whatever child ends."""
        self.spawn("kill", CONTAINER, str(int(number)))

    def call(self, verb: str, *options: str, timeout_s: float = _CALL_TIMEOUT_S) -> None:
        """Run a verb on the sandbox to its end.

        Raises:
            RuntimeUnavailable: It failed (the log says why) or took longer; it is ended then.
        """
        code = wait_for(self.spawn(verb, *options, CONTAINER), timeout_s)
        if code:
            raise RuntimeUnavailable(f"runsc {verb} ended with {code}", hint="see the sandbox's log")


def common_flags(state_dir: Path, platform: str) -> Sequence[str]:
    """What makes a runsc isolate as we promise."""
    return (
        f"--root={state_dir}",
        f"--platform={platform}",
        "--network=none",
        # The bridge's socket is made inside and dialled from outside, never the other way round.
        "--host-uds=create",
        "--overlay2=root:self",
        "--ignore-cgroups",
    )


def wait_for(pid: int, timeout_s: float) -> int:
    """Reap exactly this child, killed after the timeout; its exit code, or 128+n."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return 128 + signal.SIGKILL
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    finally:
        os.close(handle)
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 128 + signal.SIGKILL
    return 128 - code if code < 0 else code
