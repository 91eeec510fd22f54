"""A verb imports only what it runs: measured on the real command, in processes of their own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

HEAVY = ("boto3", "botocore", "textual", "mcp", "rich", "httpx", "pydantic", "cryptography", "uvicorn", "sqlite3")
_IMPORT_LINE = "import time:"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sbxtui.cli.main") is None, reason="this tree has no command line"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with one running sandbox called `lazy`, whose endpoint and token are cached by a first exec."""
    folder = tmp_path_factory.mktemp("home")
    try:
        _sbx(folder, "create", "lazy")
        _sbx(folder, "exec", "lazy", "--", "true")
        yield folder
    finally:
        _sbx(folder, "rm", "lazy", "--yes", is_checked=False)
        _sbx(folder, "local", "stop", is_checked=False)


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("exec", "--help"), ("create", "--help")])
def test_help_and_version_import_nothing_heavy(arguments: tuple[str, ...], tmp_path: Path) -> None:
    # Not heavy alone, but with what it brings a third of what `--help` may cost.
    assert _imported(tmp_path, *arguments) & {*HEAVY, "dataclasses", "asyncio"} == set()


def test_a_usage_error_imports_nothing_heavy(tmp_path: Path) -> None:
    assert _imported(tmp_path, "no-such-verb") & set(HEAVY) == set()


def test_ls_imports_neither_httpx_nor_rich_nor_a_face(home: Path) -> None:
    assert _imported(home, "ls") & {"httpx", "rich", "textual", "mcp", "pydantic", "uvicorn"} == set()


def test_exec_with_a_cached_endpoint_and_token_imports_no_boto3(home: Path) -> None:
    imported = _imported(home, "exec", "lazy", "--", "true")
    # httpx brings rich along, for a command line of its own.
    assert imported & {"boto3", "botocore", "textual", "mcp", "pydantic", "uvicorn"} == set()


def _imported(home: Path, *arguments: str) -> set[str]:
    """Top-level names of what `sbx ARGUMENTS` imports in its own process; its children do not count."""
    ended = _run([sys.executable, "-X", "importtime", "-m", "sbxtui", *arguments], home)
    lines = [line for line in ended.stderr.splitlines() if line.startswith(_IMPORT_LINE)]
    names = {line.rsplit("|", 1)[-1].strip() for line in lines}
    assert "sbxtui" in names, ended.stderr[-2000:]
    return {name.partition(".")[0] for name in names}


def _sbx(home: Path, *arguments: str, is_checked: bool = True) -> None:
    ended = _run([sys.executable, "-m", "sbxtui", *arguments], home)
    assert not is_checked or ended.returncode == 0, ended.stderr[-2000:]


def _run(command: Sequence[str], home: Path) -> subprocess.CompletedProcess[str]:
    foreign = ("SBX_", "AGENT_SANDBOX_", "AWS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    env = {**kept, "SBX_HOME": str(home), "NO_COLOR": "1"}
    return subprocess.run(
        command, env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )
