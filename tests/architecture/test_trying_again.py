"""A test that is tried again begins anew: what its file shares is made again, and nothing of the first try is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SHARED = """
import pytest

made = []

@pytest.fixture(scope="module")
def shared():
    made.append({})
    yield made[-1]
    made[-1].clear()

def test_before(shared):
    assert made == [{}]

def test_fails_once(shared):
    assert "name" not in shared, "the name is taken"
    shared["name"] = "mine"
    assert len(made) == 2

def test_after(shared):
    assert made == [{}, {"name": "mine"}]
"""


def test_a_test_that_is_tried_again_begins_in_a_world_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_setup\n")
    (tmp_path / "test_shared.py").write_text(SHARED)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    again = subprocess.run([*words, "--reruns", "1"], cwd=ROOT, capture_output=True, text=True)
    assert "3 passed, 1 rerun" in again.stdout, again.stdout
