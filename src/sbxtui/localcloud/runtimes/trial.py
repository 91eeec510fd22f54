"""A program tried to its end as the user of sandboxes: what a probe asks."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence

_SAID_BYTES = 4096


def tried(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    owner: int | None,
    group: int | None,
    timeout_s: float,
    executable: str | None = None,
) -> tuple[int, str]:
    """Run it; its exit code, and how what it said on both streams begins.

    Args:
        owner: Whose process it is, with no further groups; None for this process's own.
        executable: What is run where that is not called as the command begins.

    Raises:
        OSError: It cannot be started. subprocess.TimeoutExpired: It did not end in time, and was killed.
    """
    # Never a pipe: what it leaves behind would hold it open.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run(
            command,
            executable=executable,
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            user=owner,
            group=group,
            extra_groups=None if owner is None else [],
            timeout=timeout_s,
            check=False,
        )
        said.seek(0)
        return done.returncode, said.read(_SAID_BYTES).decode(errors="replace").strip()
