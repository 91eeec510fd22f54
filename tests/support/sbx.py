"""The real `sbx` in a real process, with a home of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """How a call ended."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        """Standard output as text without the last newline."""
        return self.stdout.decode().rstrip("\n")

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode()

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        """The error object on the last line of standard error."""
        document: dict[str, Any] = json.loads(self.stderr.splitlines()[-1])["error"]
        return document


@dataclass(frozen=True, slots=True)
class Sbx:
    """A home and the program that works in it; `env` is laid over a clean environment."""

    home: Path
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None

    @property
    def command(self) -> str:
        """How a shell line starts it."""
        return shlex.join([sys.executable, "-m", "sbxtui"])

    def environment(self) -> dict[str, str]:
        """This process's environment without anything of ours or AWS's, then `SBX_HOME` and `env`."""
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("SBX_", "AGENT_SANDBOX_", "AWS_", "XDG_"))
        }
        return {**inherited, "SBX_HOME": str(self.home), "HOME": str(self.home), **self.env}

    def __call__(self, *words: str, stdin: bytes = b"", timeout_s: float = DEADLINE_S) -> Result:
        """Run a line to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "sbxtui", *words],
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            env=self.environment(),
            cwd=self.cwd or self.home,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, stdin: bytes = b"", timeout_s: float = DEADLINE_S) -> Result:
        """Run a line that must succeed."""
        result = self(*words, stdin=stdin, timeout_s=timeout_s)
        assert result.code == 0, f"sbx {' '.join(words)} ended with {result.code}: {result.err}{result.out}"
        return result

    def spawn(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a line and leave it running; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "sbxtui", *words],
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
            cwd=self.cwd or self.home,
            **options,
        )


@contextmanager
def sbx_home(home: Path, **env: str) -> Iterator[Sbx]:
    """An `sbx` with its own home; afterwards its sandboxes, local cloud and runner are ended."""
    home.mkdir(parents=True, exist_ok=True)
    sbx = Sbx(home, env)
    try:
        yield sbx
    finally:
        if (home / "state" / "runner.json").exists():
            sbx("runner", "stop")
        if (home / "state" / "local").exists():
            sbx("local", "reset", "--yes")


def is_running_in(sbx: Sbx, sandbox: str, words: str) -> bool:
    """Whether a process of the sandbox was started with just these words; asked without tools a bare machine lacks."""
    listing = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $file; echo; done 2>/dev/null"
    return words in [line.strip() for line in sbx.ok("exec", sandbox, "--", "sh", "-c", listing).out.splitlines()]
