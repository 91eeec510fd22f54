"""When a keeper looks for its sandbox's bridge: as soon as its socket has its name, where the kernel tells."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

_POLL_S, _TOLD_POLL_S = 0.004, 0.1


class BridgeWatch:
    """Wakes its process by SIGIO when something is named in the folder. Close it.

    Looking all the time costs a keeper more processor time than all else it does at a start, and most where many start
    at once.
    """

    def __init__(self, control_dir: Path) -> None:
        self._control_dir = control_dir
        self._socket = str(control_dir / "in.sock")
        self._fd = -1
        self._is_told = False

    def begin(self) -> None:
        """From now on; the folder is there."""
        # Not every kernel tells, nor every file system.
        with contextlib.suppress(OSError):
            self._fd = os.open(self._control_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.fcntl(self._fd, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT)
            self._is_told = True

    @property
    def pause_s(self) -> float:
        """Until the next look: what listens behind the bridge tells nobody that it does."""
        return _TOLD_POLL_S if self._is_told and not os.path.lexists(self._socket) else _POLL_S

    def close(self) -> None:
        """Hear of no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
