"""The front door says what is wrong with a machine, and does nothing twice."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.support import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what the Makefile looks at, in which nothing was set up yet."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", ["run", "test", "setup"])
def test_a_missing_python_is_an_error_with_a_hint(checkout: Path, target: str) -> None:
    ended = _make(checkout, target, "PYTHON=no-such-python")
    assert ended.returncode != 0
    assert "error: sbx needs Python 3.11 or newer and `no-such-python` is missing" in ended.stderr
    assert f"hint: make {target} PYTHON=" in ended.stderr
    assert ended.stdout == ""


def test_a_python_that_is_too_old_is_named_with_its_version(checkout: Path) -> None:
    old = checkout / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    assert "`./old-python` is Python 3.9.2" in _make(checkout, "run", "PYTHON=./old-python").stderr


def test_a_python_without_venv_leaves_no_half_made_environment(checkout: Path) -> None:
    without = checkout / "python-without-venv"
    without.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 0\nmkdir -p .venv/bin\nexit 1\n')
    without.chmod(0o755)
    ended = _make(checkout, "run", "PYTHON=./python-without-venv")
    assert "hint: on Debian and Ubuntu: apt-get install python3-venv" in ended.stderr
    assert not (checkout / ".venv").exists()


def test_set_up_does_nothing_when_nothing_changed_and_again_when_the_constraints_did(checkout: Path) -> None:
    _pretend_to_be_set_up(checkout)
    assert _make(checkout, "--question", "setup").returncode == 0
    later_ns = (checkout / "constraints.txt").stat().st_mtime_ns + 10**12
    _touch(checkout / "constraints.txt", later_ns)
    assert _make(checkout, "--question", "setup").returncode == 1


def test_a_moved_checkout_is_set_up_again(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    _pretend_to_be_set_up(checkout)
    moved = tmp_path_factory.mktemp("moved") / "there"
    shutil.copytree(checkout, moved)
    assert _make(moved, "--question", "setup").returncode == 1


def _pretend_to_be_set_up(checkout: Path) -> None:
    listed = _make(checkout, "--print-data-base", "--question", "setup").stdout
    stamps = {line.partition(" := ")[0]: line.partition(" := ")[2] for line in listed.splitlines() if " := " in line}
    here = stamps["HERE"]
    newest_ns = max(path.stat().st_mtime_ns for path in checkout.iterdir())
    for order, name in enumerate((f".run-{here}", f".dev-{here}"), start=1):
        (checkout / ".venv").mkdir(exist_ok=True)
        (checkout / ".venv" / name).touch()
        _touch(checkout / ".venv" / name, newest_ns + order * 10**9)


def _touch(path: Path, time_ns: int) -> None:

    os.utime(path, ns=(time_ns, time_ns))


def _make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
    )
