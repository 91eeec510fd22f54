"""A virtual machine for each sandbox has gates: one that is shut is told, and nothing less is given instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.runtimes.choose import ORDER, choose_runtime
from sbxtui.localcloud.runtimes.microvm import SHOWN, shared
from sbxtui.localcloud.runtimes.microvm_gates import Machine, shut_gates, why_not


def test_every_gate_that_is_shut_is_told_with_its_remedy(tmp_path: Path) -> None:
    kvm = tmp_path / "kvm"
    kvm.touch()
    able = Machine(True, "x86_64", "processor: 0\nflags\t\t: fpu svm sse\n", kvm)
    assert shut_gates(able) == [] and why_not(able) == ""
    bare = Machine(False, "x86_64", "flags\t: fpu sse\nbugs\t: vmx_like\n", tmp_path / "none")
    told = shut_gates(bare)
    for gate, words in zip(told, ("pip install 'sbxtui[microvm]'", "neither vmx nor svm", "kvm module"), strict=True):
        assert words in gate and ": " in gate
    assert why_not(bare) == "; ".join(told)
    assert shut_gates(replace(able, machine="riscv64"))[0].startswith("there is no `microsandbox` for riscv64")


@pytest.mark.parametrize("wish", ["microvm", "isolation>=microvm"])
def test_it_is_never_chosen_by_itself_and_asked_for_it_is_refused_with_its_reason(wish: str, tmp_path: Path) -> None:
    assert "microvm" not in [runtime.id for runtime in ORDER]
    with pytest.raises(RuntimeUnavailable) as caught:
        choose_runtime(wish, tmp_path)
    assert f"microvm: {why_not(Machine.here())}" in caught.value.message


def test_what_a_machine_is_shown_is_read_only_and_a_path_its_monitor_would_misread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = shared({"/usr": "/usr", "/etc/file": str(tmp_path / "file")}, *SHOWN)
    options = "nosuid,nodev,ro,stat-virt=off"
    assert words == [f"--mount-dir=/usr:/usr:{options}", f"--mount-file={tmp_path}/file:/etc/file:{options}"]
    with pytest.raises(RuntimeUnavailable, match="cannot be shared"):
        shared({"/work": f"{tmp_path}/a:rw"})
