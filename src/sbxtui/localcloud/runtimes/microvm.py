"""The gates before a virtual machine for each sandbox, by the `microsandbox` package: what this machine lacks for it.

Nothing passes all of them: no sandbox is started in one yet. It is never chosen by itself, and whoever asks for it by
name is told the first gate that is shut, and gets no less instead.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

ID = "microvm"
_PACKAGE = "microsandbox"
_MACHINES = ("x86_64", "aarch64")
_FLAGS = re.compile(r"^(?:flags|Features)\s*:.*\b(?:vmx|svm)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Machine:
    """What the gates look at."""

    has_package: bool
    machine: str
    cpuinfo: str
    kvm: Path

    @classmethod
    def here(cls) -> Machine:
        """This one."""
        try:
            cpuinfo = Path("/proc/cpuinfo").read_text()
        except OSError:
            cpuinfo = ""
        has_package = importlib.util.find_spec(_PACKAGE) is not None
        return cls(has_package, platform.machine(), cpuinfo, Path("/dev/kvm"))


def why_not(machine: Machine) -> str:
    """The first gate that is shut, with a remedy; never empty."""
    if machine.machine not in _MACHINES:
        return f"there is no `{_PACKAGE}` for {machine.machine}"
    if not machine.has_package:
        return f"the package `{_PACKAGE}` is not installed beside sbx"
    # Where a hypervisor lends no such flag, /dev/kvm may be there all the same and boot nothing.
    if machine.machine == "x86_64" and not _FLAGS.search(machine.cpuinfo):
        return "this machine's processor shows neither vmx nor svm, so it boots no virtual machine"
    if not machine.kvm.exists():
        return f"there is no {machine.kvm}: load the kernel's kvm module"
    if not os.access(machine.kvm, os.R_OK | os.W_OK):
        return f"you may not use {machine.kvm}: join its group, kvm as a rule"
    return "this machine could, and this sbx starts no sandboxes in virtual machines yet"
