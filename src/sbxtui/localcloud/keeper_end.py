"""What a keeper writes down: what was killed for a limit, when it was, and the end, before anything is removed."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict

from sbxtui.core.kills import FILE_NAME, KEPT, Kills, usage_words
from sbxtui.localcloud.sentry_watch import SentryWatch
from sbxtui.localcloud.spec import ExitInfo, SandboxSpec, write_private
from sbxtui.localcloud.watchdog import Watchdog

# Both watch over limits, one from outside, one for a kernel of its own.
Watch = Watchdog | SentryWatch

_KILLED_CODE = 128 + signal.SIGKILL


def write_kills(spec: SandboxSpec, watchdog: Watch, noted: int) -> int:
    """Write what was killed beside the sandbox's files, if there is more of it than `noted`.

    Returns:
        How many kills are written down; as before on a full disk, so that the next call tries again.
    """
    if watchdog.kill_count == noted:
        return noted
    kills = Kills(tuple(watchdog.kills)[-KEPT:], watchdog.kill_count)
    try:
        write_private(spec.sandbox_dir / FILE_NAME, kills.to_json())
    except OSError as exc:
        say(f"cannot write what was killed: {exc}")
        return noted
    return kills.count


def limit_of_end(watchdog: Watch | None, code: int, reason: str) -> str:
    """Which limit the guest itself was killed for, by its watchdog or by the kernel; nothing for any other end.

    Args:
        watchdog: None when the sandbox never started.
        code: The guest's exit code.
        reason: Why the keeper ended it, empty when it did not.
    """
    if watchdog is None or reason not in ("", "limit"):
        return ""
    was_killed_now = watchdog.note_end() and code == _KILLED_CODE
    if not watchdog.kills or not (reason or was_killed_now):
        return ""
    last = watchdog.kills[-1]
    return f"{last.limit}, {usage_words(last)}"


class EndRecord:
    """The `exit.json` of one sandbox."""

    def __init__(self, spec: SandboxSpec) -> None:
        self._spec = spec
        self.info: ExitInfo | None = None
        self._is_written = False

    def write(self, info: ExitInfo) -> None:
        """Note how it ended. A full disk must not keep the keeper from going on: what it removes makes room."""
        self.info = info
        self.write_again()

    def write_again(self) -> None:
        """Once more, after the sandbox's remains are gone, if there was no room before."""
        if self.info is None or self._is_written:
            return
        try:
            write_private(self._spec.exit_file, json.dumps(asdict(self.info)))
            self._is_written = True
        except OSError as exc:
            say(f"cannot write how the sandbox ended: {exc}")


def say(text: str) -> None:
    """To the sandbox's own log. Not by `logging`: importing that takes a tenth of a start."""
    try:
        sys.stderr.write(f"keeper: {text}\n")
        sys.stderr.flush()
    except OSError:
        # The log is a file, and its disk may be full.
        return
