"""The README's session is typed in as it stands, and must answer as it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.support import ROOT
from tests.support.console import fits, steps_of

pytestmark = pytest.mark.long


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A new home, with `sbx` on the path; afterwards its sandboxes and its local cloud are gone."""
    foreign = ("SBX_", "AGENT_SANDBOX_", "AWS_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    own = {**inherited, "PATH": path, "SBX_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    try:
        yield own
    finally:
        for closing in ("sbx rm --all --yes", "sbx local stop"):
            subprocess.run(closing, shell=True, env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)  # noqa: S602 - a fixed line


def test_the_readmes_session_answers_as_it_says(tmp_path: Path, env: dict[str, str]) -> None:
    steps = list(steps_of((ROOT / "README.md").read_text()))
    assert len(steps) >= 6
    for command, expected in steps:
        ended = subprocess.run(  # noqa: S602 - lines of our own README, typed as a person would
            command,
            shell=True,
            env=env,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=90,
        )
        assert fits(expected, ended.stdout), f"$ {command}\n{ended.stdout}\n--- but the README says\n{expected}"


@pytest.mark.parametrize(
    ("expected", "actual", "does_fit"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("", "a\n", False),
        ("demo  …  running\n", "demo  12s  running\n", True),
        ("demo  …  running\n", "demo  12s\nrunning\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\nd\n", "a\nb\nc\n", False),
    ],
)
def test_an_ellipsis_stands_for_the_rest_of_a_line_or_for_lines(expected: str, actual: str, does_fit: bool) -> None:
    assert fits(expected, actual) is does_fit
