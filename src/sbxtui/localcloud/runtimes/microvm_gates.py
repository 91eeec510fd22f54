"""The gates before a virtual machine for each sandbox, by the `microsandbox` package: what this machine lacks for it.

It is never chosen by itself, and whoever asks for it by name is told every gate that is shut, with what opens it, and
gets no less instead. The last gate is a boot, which `microvm_probe` tries when all these are open.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "microsandbox"
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
        has_package = importlib.util.find_spec(PACKAGE) is not None
        return cls(has_package, platform.machine(), cpuinfo, Path("/dev/kvm"))


def shut_gates(machine: Machine) -> list[str]:
    """Every gate that is shut, each with its remedy."""
    is_known = machine.machine in _MACHINES
    gates = []
    if not is_known:
        gates.append(f"there is no `{PACKAGE}` for {machine.machine}: use gVisor, or another machine")
    elif not machine.has_package:
        gates.append(f"the package `{PACKAGE}` is not installed beside sbx: `pip install 'sbxtui[microvm]'`")
    # Where a hypervisor lends no such flag, /dev/kvm may be there all the same and boot nothing.
    if machine.machine == "x86_64" and not _FLAGS.search(machine.cpuinfo):
        gates.append("the processor shows neither vmx nor svm: turn virtualization on, nested in a virtual machine")
    if not machine.kvm.exists():
        gates.append(f"there is no {machine.kvm}: load the kernel's kvm module")
    elif not os.access(machine.kvm, os.R_OK | os.W_OK):
        gates.append(f"you may not use {machine.kvm}: join its group, kvm as a rule")
    return gates


def why_not(machine: Machine) -> str:
    """All gates that are shut, in one line; empty when none is."""
    return "; ".join(shut_gates(machine))
