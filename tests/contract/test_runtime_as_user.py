"""Runs the runtime suites again as somebody who is not root, when the tests themselves run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
USER_ID = 1500
SUITES = (
    *("test_runtime_contract.py", "test_runtime_limits.py", "test_runtime_attacks.py", "test_runtime_marks.py"),
    "test_own_root.py",
)


def _python_for_user() -> str | None:
    """An interpreter of our version that a stranger may run."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = [str(Path(sys.executable).resolve()), shutil.which(name, path="/usr/bin:/usr/local/bin")]
    for candidate in filter(None, candidates):
        if _as_user([candidate, "-c", "import ssl, ctypes"], {}).returncode == 0:
            return candidate
    return None


def _as_user(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=env,
            cwd=REPOSITORY,
            user=USER_ID,
            group=USER_ID,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=1200,
        )
    except PermissionError as exc:
        return subprocess.CompletedProcess(command, 126, "", str(exc))


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_passes_for_a_plain_user_too(suite: str) -> None:
    python = _python_for_user()
    if python is None:
        pytest.skip("no interpreter of this version can be run by a plain user")
    home = tempfile.mkdtemp(prefix="sbx-user-", dir="/tmp")
    os.chown(home, USER_ID, USER_ID)
    env = {
        "HOME": home,
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(path for path in [str(REPOSITORY), *sys.path] if path and Path(path).is_dir()),
    }
    if runsc := os.environ.get("SBX_TEST_RUNSC"):
        env["SBX_TEST_RUNSC"] = runsc
    for name in ("src", "guest"):
        env["PYTHONPATH"] += os.pathsep + str(REPOSITORY / name)
    if Path(python).resolve() != Path(sys.executable).resolve():
        # Another build of the same version brings its own standard library.
        kept = [path for path in env["PYTHONPATH"].split(os.pathsep) if not path.startswith(sys.base_prefix)]
        env["PYTHONPATH"] = os.pathsep.join(kept)
    try:
        done = _as_user([python, "-m", "pytest", "-q", "-rs", "-p", "no:xdist", f"tests/contract/{suite}"], env)
    finally:
        shutil.rmtree(home)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    reasons = ("no runsc found", "no root of its own")
    assert all(any(reason in line for reason in reasons) for line in skipped), skipped
