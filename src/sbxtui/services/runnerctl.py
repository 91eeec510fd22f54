"""Finding, starting and ending the runner of a home: the process that looks after work whose face may die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from sbxtui.control.local import without_aws
from sbxtui.core.errors import SbxError, TimedOut
from sbxtui.home import Home, private_dir
from sbxtui.identity import ProcessIdentity

_STOP_DEADLINE_S = 20.0
_POLL_S = 0.05


def runner_file(home: Home) -> Path:
    """Where the runner says who it is."""
    return home.state_dir / "runner.json"


def find_runner(home: Home) -> ProcessIdentity | None:
    """The runner of this home if one runs."""
    try:
        identity = ProcessIdentity.parse(str(json.loads(runner_file(home).read_bytes())["identity"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return identity if identity.is_alive else None


def start_runner(home: Home) -> None:
    """Start a runner if none runs; a second one finds the lock taken and ends at once."""
    if find_runner(home) is not None:
        return
    private_dir(home.state_dir)
    private_dir(home.log_dir)
    try:
        with (home.log_dir / "runner.log").open("ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", "sbxtui.runner"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=without_aws(dict(os.environ)),
                cwd="/",
            )
    except OSError as exc:
        raise SbxError(f"cannot start the runner: {exc}") from exc


async def stop_runner(home: Home) -> bool:
    """Ask the runner to finish; False when none runs.

    Raises:
        TimedOut: It does not end.
    """
    identity = find_runner(home)
    if identity is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(identity.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_DEADLINE_S):
            while identity.is_alive:
                await asyncio.sleep(_POLL_S)
    except TimeoutError as exc:
        message = f"the runner (pid {identity.pid}) does not end"
        raise TimedOut(message, hint=f"kill -9 {identity.pid}; nothing is lost by it") from exc
    return True
