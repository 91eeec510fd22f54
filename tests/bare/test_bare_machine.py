"""The README's two commands on a Debian 12 that has nothing but itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        shutil.which("debootstrap", path="/usr/sbin:/usr/bin:/sbin:/bin") is None, reason="debootstrap is missing"
    ),
]

_RUN = Path(__file__).with_name("run.sh")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_bare_machine_gets_from_the_clone_to_a_sandbox(tmp_path: Path) -> None:
    assert _transcript(tmp_path, timeout_s=880).endswith("bare machine: done\n")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_bare_machine_passes_the_tests(tmp_path: Path) -> None:
    assert _transcript(tmp_path, "--full", timeout_s=3580).endswith("bare machine: done\n")


def _transcript(tmp_path: Path, *arguments: str, timeout_s: float) -> str:
    file = tmp_path / "transcript.txt"
    with file.open("wb") as output:
        ended = subprocess.run(
            [str(_RUN), *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout_s
        )
    text = file.read_text(encoding="utf-8", errors="replace")
    assert ended.returncode == 0, text[-4000:]
    return text
