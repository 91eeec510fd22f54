"""A clean copy of this working tree, virtual environments, and commands run in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("sbx", "sbxtui")

_FOREIGN = ("SBX_", "AGENT_SANDBOX_", "AWS_", "PYTHONPATH", "VIRTUAL_ENV", "COV_", "PYTEST_")


def copy_tree(target: Path) -> Path:
    """What git knows of this tree, with uncommitted changes, at `target`: building leaves its traces there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def make_venv(folder: Path) -> Path:
    """A fresh virtual environment with pip; its `bin` folder."""
    venv.create(folder, with_pip=True, symlinks=True)
    return folder / "bin"


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = 300) -> str:
    """Run to the end and return stdout; a failure shows what the command wrote."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert ended.returncode == 0, (
        f"{command} ended with {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    )
    return ended.stdout
