"""Stopping a sandbox where it stands and letting it go on: by control group, by its own kernel, or one by one."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, field

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.cgroups import Cgroup
from sbxtui.localcloud.keeper_processes import descendants, send_signal, stop_all
from sbxtui.localcloud.runtimes.base import Started


@dataclass(slots=True)
class Freezer:
    """Freezes `started` and what it started."""

    cgroup: Cgroup
    started: Started
    _stopped: set[int] = field(default_factory=set)

    @property
    def _has_group(self) -> bool:
        """Whether its group stops as a whole. One with a virtual machine was seen not to, on Linux 6.1: what the kernel
        itself runs for a machine in there need not.
        """
        return self.cgroup.can_freeze and self.started.host_limits is None

    def freeze(self) -> str:
        """Stop everything; an empty string, or why it failed (then all goes on)."""
        try:
            if self._has_group:
                self.cgroup.freeze(is_frozen=True)
            elif self.started.kernel is not None:
                self.started.kernel.runsc.call("pause")
            else:
                self._stopped, has_settled = stop_all(lambda: descendants(self.started.root_pid))
                if not has_settled:
                    self.thaw()
                    return "freezing failed: not all of its processes stop"
        except (OSError, TimeoutError, RuntimeUnavailable) as exc:
            with contextlib.suppress(OSError, TimeoutError, KeyError):
                self.cgroup.freeze(is_frozen=False)
            return f"freezing failed: {exc}"
        return ""

    def thaw(self) -> str:
        """Undo `freeze`; an empty string, or why it failed."""
        try:
            if self._has_group:
                self.cgroup.freeze(is_frozen=False)
            elif self.started.kernel is not None:
                self.started.kernel.runsc.call("resume")
            send_signal(self._stopped, signal.SIGCONT)
        except (OSError, TimeoutError, RuntimeUnavailable) as exc:
            return f"thawing failed: {exc}"
        self._stopped = set()
        return ""


def ask_to_end(started: Started) -> None:
    """Let the guest's first process end cleanly."""
    if started.kernel is not None:
        started.kernel.runsc.signal(signal.SIGTERM)
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(started.boot_pid, signal.SIGTERM)
