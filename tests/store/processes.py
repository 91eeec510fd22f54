"""Starting the store's worker processes together, and reading what they found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sbxtui.home import Home

ROOT = Path(__file__).parents[2]


@contextmanager
def workers(home: Home, actions: Sequence[Sequence[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """One process per action, all imported and waiting for `start`; killed on leaving."""
    started: list[subprocess.Popen[str]] = []
    try:
        for action in actions:
            command = [sys.executable, "-m", "tests.store.worker", str(home.state_dir), *action]
            started.append(
                subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
        for process in started:
            assert line(process) == "ready"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def start(process: subprocess.Popen[str]) -> None:
    """Let a waiting worker act."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    """The next line a worker prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def result(process: subprocess.Popen[str]) -> Any:
    """The JSON a worker ends with."""
    found = json.loads(line(process))
    assert process.wait(30) == 0
    return found


def run_together(home: Home, actions: Sequence[Sequence[str]]) -> list[Any]:
    """Let all act at the same moment and gather what they found."""
    with workers(home, actions) as started:
        for process in started:
            start(process)
        return [result(process) for process in started]
