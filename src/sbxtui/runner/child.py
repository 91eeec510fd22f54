"""The runner's children: one process per kind of link, started anew when it dies."""

from __future__ import annotations

import logging
import subprocess
import sys
import time

from sbxtui.home import Home

log = logging.getLogger(__name__)

_AGAIN_S = 2.0
_END_S = 15.0


class Child:
    """A child of this process; blocking calls, from one thread at a time.

    Args:
        home: Whose links it serves.
        kind: Names the module that is run: `sbxtui.runner.KIND`.
    """

    def __init__(self, home: Home, kind: str) -> None:
        self._log_file = home.log_dir / f"{kind}.log"
        self._module = f"sbxtui.runner.{kind}"
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0

    def keep(self, is_needed: bool) -> None:
        """See to it that it runs if it is needed; one that is not needed ends by itself."""
        if self._process is not None and self._process.poll() is not None:
            log.info("%s ended with %s", self._module, self._process.returncode)
            self._process = None
        if not is_needed or self._process is not None or time.monotonic() - self._started_s < _AGAIN_S:
            return
        self._started_s = time.monotonic()
        with self._log_file.open("ab") as out:
            # A session of its own: what ends the runner by its group does not end it, it notices by itself.
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd="/",
            )

    def end(self) -> None:
        """End it, as gently as it lets us."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
