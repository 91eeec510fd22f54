"""A virtual machine for each sandbox has gates: one that is shut is told, and nothing less is given instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.runtimes.choose import ORDER, choose_runtime
from sbxtui.localcloud.runtimes.microvm import Machine, why_not


def test_the_first_gate_that_is_shut_is_told(tmp_path: Path) -> None:
    kvm = tmp_path / "kvm"
    kvm.touch()
    able = Machine(True, "x86_64", "processor: 0\nflags\t\t: fpu svm sse\n", kvm)
    assert "no sandboxes in virtual machines yet" in why_not(able)
    assert "not installed" in why_not(replace(able, has_package=False))
    assert "neither vmx nor svm" in why_not(replace(able, cpuinfo="flags\t: fpu sse\nbugs\t: vmx_like\n"))
    assert "kvm module" in why_not(replace(able, kvm=tmp_path / "none"))
    assert "riscv64" in why_not(replace(able, machine="riscv64"))


@pytest.mark.parametrize("wish", ["microvm", "isolation>=microvm"])
def test_it_is_never_chosen_by_itself_and_asked_for_it_is_refused_with_its_reason(wish: str, tmp_path: Path) -> None:
    assert "microvm" not in [runtime.id for runtime in ORDER]
    with pytest.raises(RuntimeUnavailable) as caught:
        choose_runtime(wish, tmp_path)
    assert f"microvm: {why_not(Machine.here())}" in caught.value.message
