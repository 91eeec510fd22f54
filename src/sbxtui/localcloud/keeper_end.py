"""What a keeper writes down of its sandbox's end: once, before anything is removed, so that no crash loses it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from sbxtui.localcloud.spec import ExitInfo, SandboxSpec, write_private


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
