"""Which Python runs a sandbox's guest: the system's, ours at its own path, or a copy where a dropped uid cannot
reach ours.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sbxtui.localcloud.runtimes import interpreter
from sbxtui.localcloud.runtimes.base import readable_path
from sbxtui.localcloud.runtimes.interpreter import choose_interpreter
from tests.support.sandboxes import Place, require_runtime, running

BASE = Path(sys.base_prefix).resolve()
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def no_system_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose `/usr` has another version."""
    if BASE.is_relative_to("/usr"):
        pytest.skip("the tests run on the system's own Python")
    monkeypatch.setattr(interpreter, "_system_python", lambda: "")


def test_a_system_python_of_our_version_is_preferred(tmp_path: Path) -> None:
    system = Path(f"/usr/bin/python{VERSION}")
    if not system.exists():
        pytest.skip(f"no {system} here")
    chosen = choose_interpreter(tmp_path, is_uid_dropped=True)
    assert (chosen.executable, chosen.prefix) == (str(system), "")
    assert not list(tmp_path.iterdir())


def test_our_own_python_is_bound_at_its_own_path(no_system_python: None, tmp_path: Path) -> None:
    chosen = choose_interpreter(tmp_path, is_uid_dropped=False)
    assert (chosen.prefix, chosen.source) == (str(BASE), str(BASE))
    assert Path(chosen.executable).is_relative_to(BASE)


@pytest.mark.slow
async def test_a_python_outside_usr_runs_the_guest_and_is_python_inside(no_system_python: None, place: Place) -> None:
    require_runtime("bubblewrap", place.images_dir)
    async with running(place.spec(images_dir=place.root / "images")) as sandbox:
        ran = await sandbox.run(
            "python3 -c 'import sys; print(sys.base_prefix)'; /opt/sbx/bin/python -V; ls -A /root 2>&1"
        )
    assert f"Python {VERSION}" in ran.out
    assert ".bashrc" not in ran.out


@pytest.mark.slow
@pytest.mark.root
def test_a_copy_is_made_once_where_the_original_is_closed_to_others(no_system_python: None, tmp_path: Path) -> None:
    if readable_path(BASE):
        pytest.skip("everybody can reach the Python the tests run on")
    first = choose_interpreter(tmp_path, is_uid_dropped=True)
    assert choose_interpreter(tmp_path, is_uid_dropped=True) == first
    copy = Path(first.source)
    assert copy.is_relative_to(tmp_path)
    assert first.prefix == str(BASE)
    assert [path.name for path in tmp_path.iterdir()] == [copy.name]
    assert all(path.is_symlink() or os.stat(path).st_mode & 0o004 for path in copy.rglob("*"))
