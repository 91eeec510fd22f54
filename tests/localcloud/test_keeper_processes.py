"""What a keeper stops and kills: all of its sandbox, or it says so, and nothing else."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sbxtui.localcloud import keeper_freeze
from sbxtui.localcloud.cgroups import Cgroup
from sbxtui.localcloud.keeper_freeze import Freezer
from sbxtui.localcloud.keeper_processes import Process, descendants, read_process, send_signal, stop_all
from sbxtui.localcloud.runtimes.base import Started


def _growing(process: subprocess.Popen[bytes]) -> Callable[[], dict[int, Process]]:
    """A list of one real process and, each time, one more that nobody has."""
    beyond_any_pid = itertools.count(10**7)

    def processes() -> dict[int, Process]:
        real = read_process(process.pid)
        assert real is not None
        new = next(beyond_any_pid)
        return {real.pid: real, new: replace(real, pid=new)}

    return processes


def test_processes_that_keep_coming_are_not_told_as_stopped() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        stopped, has_settled = stop_all(_growing(process))
        process.kill()
    assert process.pid in stopped
    assert not has_settled


def test_a_sandbox_that_cannot_be_stopped_as_a_whole_is_not_frozen_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        growing = _growing(process)
        monkeypatch.setattr(keeper_freeze, "descendants", lambda _: growing())
        problem = Freezer(Cgroup(), Started(root_pid=process.pid, boot_pid=process.pid, kill_pids=())).freeze()
        found = read_process(process.pid)
        process.kill()
    assert "not all" in problem
    assert found is not None and found.state not in "tT"


def _with_descendants(pid: int) -> dict[int, Process]:
    process = read_process(pid)
    assert process is not None
    return {pid: process, **descendants(pid)}


def test_processes_that_are_stopped_are_told_as_stopped() -> None:
    with subprocess.Popen(["sh", "-c", "while :; do sleep 0.01; done"]) as process:
        stopped, has_settled = stop_all(lambda: _with_descendants(process.pid))
        found = read_process(process.pid)
        send_signal(stopped, signal.SIGCONT)
        process.kill()
    assert has_settled
    # A shell that waits for its child to begin sleeps where nothing disturbs it, and goes no further than that.
    assert found is not None and found.state in "tTD"


_KEEPER_WHOSE_SANDBOX_ENDED = """
import os, subprocess, sys
from pathlib import Path
from sbxtui.localcloud.keeper import Keeper
from sbxtui.localcloud.runtimes.base import Started
from sbxtui.localcloud.spec import SandboxSpec
stranger = subprocess.Popen(["sleep", "60"])
root = os.posix_spawn("/bin/true", ["true"], {})
sizes = dict(memory_mib=512, vcpus=1, disk_mib=100, pids_max=64, tmpfs_mib=64)
places = {name: Path(sys.argv[1]) for name in ("sandbox_dir", "control_dir", "keeper_socket")}
keeper = Keeper(SandboxSpec("one", "sbx-base", **sizes, **places, runtime="bubblewrap", env={}), -1)
keeper._started = Started(root_pid=root, boot_pid=stranger.pid, kill_pids=(stranger.pid, root))
while keeper._exit is None:
    keeper._reap()
keeper._kill_all()
assert stranger.poll() is None, "killed"
stranger.kill()
"""


def test_what_got_a_pid_of_a_sandbox_that_ended_is_not_killed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _KEEPER_WHOSE_SANDBOX_ENDED, str(tmp_path)], timeout=60, check=True)
