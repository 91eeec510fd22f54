"""One sandbox's keeper: parent of its processes, watchdog, recorder of its end.

    python -m sbxtui.localcloud.keeper SPEC_FILE [READY_FD]

Detaches, starts the sandbox, tells READY_FD one JSON line when the guest's bridge answers (or why it never will),
and serves the control socket until the sandbox has ended and its remains are gone. One thread and no asyncio: it
forks, and there is one of it per sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sbxtui.core.errors import SbxError
from sbxtui.core.text import iso
from sbxtui.localcloud.cgroups import Cgroup, folder_of
from sbxtui.localcloud.keeper_begin import BEGINNING_FOLDERS, find_beginning, new_boot_id, start_from
from sbxtui.localcloud.keeper_bridge import BridgeWatch
from sbxtui.localcloud.keeper_control import Client, Control, watch_signals
from sbxtui.localcloud.keeper_end import EndRecord, Watch, limit_of_end, say, write_kills
from sbxtui.localcloud.keeper_freeze import Freezer, ask_to_end
from sbxtui.localcloud.keeper_log import GuestLog
from sbxtui.localcloud.keeper_place import (
    HELD,
    DroppedUid,
    hold_tree,
    lock_patiently,
    make_folders,
    remove_remains,
    remove_trees,
    take_uid,
)
from sbxtui.localcloud.keeper_processes import descendants, reap_all, send_signal
from sbxtui.localcloud.keeper_save import copy_frozen, find_saved, open_up_again, save, wait_awake
from sbxtui.localcloud.keeper_start import Ours, guest_answers, request_of, watchdog_of
from sbxtui.localcloud.keeper_status import KeeperFacts, filled, status_of
from sbxtui.localcloud.limits import Limits
from sbxtui.localcloud.runtimes.base import Started
from sbxtui.localcloud.runtimes.choose import find_runtime
from sbxtui.localcloud.runtimes.launch import become_subreaper
from sbxtui.localcloud.runtimes.runsc import wait_for
from sbxtui.localcloud.spec import ExitInfo, KeeperState, KeeperStatus, SandboxSpec, write_private
from sbxtui.localcloud.watchdog import TICK_S

_BRIDGE_TIMEOUT_S = 20.0
_GONE_TIMEOUT_S = 10.0
_TERMINATE_GRACE_S = 2.0

Reason = Literal["", "terminated", "limit", "start-failed"]


class Keeper:
    """The keeper of `spec`; `run` once."""

    def __init__(self, spec: SandboxSpec, ready_fd: int) -> None:
        self._spec = spec
        self._ready_fd = ready_fd
        self._limits = Limits.of(spec)
        self._runtime = find_runtime(spec.runtime)
        self._selector = selectors.DefaultSelector()
        self._state = KeeperState.STARTING
        self._cgroup = Cgroup()
        self._started: Started | None = None
        self._freezer: Freezer | None = None
        self._watchdog: Watch | None = None
        self._uid: DroppedUid | None = None
        self._kills_noted = 0
        self._end_record = EndRecord(spec)
        self._reason: Reason = ""
        self._problem = self._mark = self._boot_id = ""
        self._kill_at = self._tick_at = self._bridge_deadline = 0.0
        self._bridge_watch = BridgeWatch(spec.control_dir)
        self._control: Control | None = None
        self._log = GuestLog(spec.log_file, self._selector)
        self._begun_from = self._golden_key = ""

    def run(self) -> int:
        """Start the sandbox, stay until it ended, remove what it left. Returns the exit code of the keeper itself."""
        watch_signals(self._selector, lambda: self._terminate(_TERMINATE_GRACE_S))
        become_subreaper()
        self._spec.exit_file.unlink(missing_ok=True)
        if not self._spec.spec_file.exists():
            # A sweep took it for a dead keeper's before we had the lock.
            write_private(self._spec.spec_file, self._spec.to_json())
        self._spec.keeper_socket.parent.mkdir(parents=True, exist_ok=True)
        self._control = Control(self._spec.keeper_socket, self._selector, self._serve)
        held: list[int] = []
        try:
            self._spec = replace(self._spec, prepared=find_beginning(self._spec).prepared)
            held += [hold_tree(Path(self._spec.prepared[name])) for name in HELD if name in self._spec.prepared]
            self._start()
            self._bridge_watch.begin()
        except (SbxError, OSError, KeyError) as exc:
            say(f"cannot start: {exc}")
            self._reason, self._problem = "start-failed", str(exc)
            self._end(1)
        while self._exit is None:
            self._turn()
        self._finish()
        for descriptor in held:
            os.close(descriptor)
        return 0

    def _start(self, *, is_same_boot: bool = False) -> None:
        """Start the sandbox, or let it go on from what there is of it; `is_same_boot`: and notice nothing of that."""
        beginning = find_beginning(self._spec)
        spec = self._spec = replace(self._spec, prepared=beginning.prepared)
        if os.geteuid() == 0 and self._runtime.needs_dropped_uid and self._uid is None:
            self._uid = take_uid(spec.sandbox_id)
        uid = self._uid.uid if self._uid else None
        make_folders(spec, uid)
        self._cgroup = Cgroup.create(
            folder_of(spec.keeper_socket.parent), spec.sandbox_id, self._runtime.host_limits(self._limits)
        )
        self._boot_id = self._boot_id if is_same_boot else new_boot_id()
        ours = Ours(uid, self._log.write_fd, self._boot_id)
        request = request_of(spec, self._runtime, self._limits, self._cgroup, ours)
        self._started, beginning = start_from(self._runtime, request, beginning)
        self._begun_from, self._golden_key = beginning.kind, beginning.key
        self._freezer = Freezer(self._cgroup, self._started)
        self._watchdog = watchdog_of(self._started, request, kill_sandbox=self._kill_for_limit)
        if beginning.folder is not None:
            self._mark = self._mark if is_same_boot else beginning.mark()
            open_up_again(spec, self._started, self._mark)
        self._bridge_deadline = time.monotonic() + _BRIDGE_TIMEOUT_S

    def _turn(self) -> None:
        """Wait for an event or what is due next, and act on either."""
        if self._state is KeeperState.STARTING:
            due_at = 0.0
            timeout_s = self._bridge_watch.pause_s
        else:
            due_at = min(self._tick_at, self._kill_at or self._tick_at)
            timeout_s = max(0.0, due_at - time.monotonic())
        for key, _ in self._selector.select(timeout_s):
            key.data()
        self._reap()
        now = time.monotonic()
        if self._exit is not None or now < due_at:
            return
        if self._kill_at and now >= self._kill_at:
            self._kill_all()
        elif self._state is KeeperState.STARTING:
            self._look_for_bridge()
        elif now >= self._tick_at:
            self._tick(now)

    def _tick(self, now: float) -> None:
        self._log.refill()
        pause_s = TICK_S
        if self._state is KeeperState.RUNNING and self._watchdog is not None:
            self._watchdog.tick()
            self._kills_noted = write_kills(self._spec, self._watchdog, self._kills_noted)
            pause_s = self._watchdog.pause_s
        self._tick_at = now + pause_s

    def _look_for_bridge(self) -> None:
        if guest_answers(self._spec.control_dir, self._spec.agent_port):
            # Not looked at at once: its guest has only begun, and nobody can have asked for a job.
            self._state, self._tick_at = KeeperState.RUNNING, time.monotonic() + TICK_S
            self._bridge_watch.close()
            # From here on it is another than the one that was saved.
            remove_trees([self._spec.sandbox_dir / name for name in BEGINNING_FOLDERS])
            self._tell_ready({"ready": True})
        elif time.monotonic() > self._bridge_deadline:
            self._reason, self._problem = "start-failed", f"the guest did not answer within {_BRIDGE_TIMEOUT_S:.0f} s"
            self._kill_all()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if self._started is not None and pid == self._started.root_pid:
                    # Its pids may be others' from now on. What it left behind is this process's child.
                    self._started = None
                    code = os.waitstatus_to_exitcode(status)
                    self._end(128 - code if code < 0 else code)

    def _end(self, code: int) -> None:
        """Note how it ended: the first to know writes it down, before anything is removed."""
        if self._state is KeeperState.STARTING and not self._reason:
            self._reason, self._problem = "start-failed", f"the guest ended with exit code {code} before it answered"
        self._state = KeeperState.EXITED
        limit = limit_of_end(self._watchdog, code, self._reason)
        self._reason = "limit" if limit else self._reason
        if self._watchdog is not None:
            self._kills_noted = write_kills(self._spec, self._watchdog, self._kills_noted)
        self._end_record.write(
            ExitInfo(
                exit_code=code,
                signal=code - 128 if 128 < code < 128 + signal.NSIG else 0,
                reason=self._reason or "exited",
                at=iso(datetime.now(UTC)),
                limit=limit,
            )
        )

    @property
    def _exit(self) -> ExitInfo | None:
        return self._end_record.info

    def _finish(self) -> None:
        """Kill what is left, take everything away, then answer those who wait."""
        assert self._control is not None and self._exit is not None
        self._kill_all()
        deadline = time.monotonic() + _GONE_TIMEOUT_S
        while (left := descendants(os.getpid())) and time.monotonic() < deadline:
            send_signal(left, signal.SIGKILL)
            reap_all()
            time.sleep(0.002)
        reap_all()
        self._log.close()
        if not self._cgroup.remove():
            say("a control group is still busy")
        is_still_saved = self._reason == "start-failed" and find_saved(self._spec.sandbox_dir) is not None
        remove_remains(self._spec, keeps_saved=is_still_saved)
        self._end_record.write_again()
        if is_still_saved:
            # It did not wake, and is not gone: another start may succeed.
            self._spec.exit_file.unlink(missing_ok=True)
        self._control.close()
        self._spec.lock_file.unlink(missing_ok=True)
        # Last of all, and the connections end with the process: who reads to their end knows that it is gone.
        self._tell_ready({"error": self._problem})
        for client in self._control.waiting:
            self._control.answer(client, asdict(self._exit))

    def _kill_all(self) -> None:
        self._kill_at = 0.0
        if self._cgroup.dirs:
            self._cgroup.kill()
        if self._started is not None:
            send_signal(self._started.kill_pids, signal.SIGKILL)
            send_signal(descendants(self._started.root_pid), signal.SIGKILL)

    def _kill_for_limit(self) -> None:
        self._reason = self._reason or "limit"
        self._kill_all()

    def _serve(self, client: Client, request: dict[str, Any]) -> dict[str, Any] | None:
        del client
        match request.get("op"):
            case "status":
                return self._status().to_dict() | {
                    "spec": {"control_dir": str(self._spec.control_dir), "sandbox_dir": str(self._spec.sandbox_dir)}
                }
            case "freeze":
                return self._freeze()
            case "thaw":
                return self._thaw()
            case "copy":
                return self._copy(Path(request["to"]))
            case "fill":
                return filled(self._watchdog)
            case "terminate" | "wait" as operation:
                if operation == "terminate":
                    self._terminate(float(request.get("grace_s", _TERMINATE_GRACE_S)))
                return None
            case _:
                return {"error": "no such operation"}

    def _status(self) -> KeeperStatus:
        facts = KeeperFacts(self._state, self._exit, self._begun_from, self._golden_key)
        return status_of(facts, self._watchdog, self._runtime, self._limits, self._cgroup)

    def _freeze(self) -> dict[str, Any]:
        if self._state is KeeperState.FROZEN:
            return {}
        if self._state is not KeeperState.RUNNING or self._freezer is None:
            return {"error": f"the sandbox is {self._state}"}
        if self._started is not None and self._started.kernel is not None:
            problem = save(self._spec, self._started, self._mark)
            self._started = self._started if problem else None
            if problem:
                # Then it is frozen in memory.
                say(problem)
        if self._started is not None and (problem := self._freezer.freeze()):
            return {"error": problem}
        self._state = KeeperState.FROZEN
        return {}

    def _restore(self, *, is_same_boot: bool) -> dict[str, Any]:
        problem = "its guest does not answer"
        try:
            self._start(is_same_boot=is_same_boot)
            if wait_awake(self._spec):
                self._state = KeeperState.RUNNING
                remove_trees([self._spec.sandbox_dir / "saved"])
                return {}
        except (SbxError, OSError, KeyError) as exc:
            problem = str(exc)
        # What was saved is still there, and may be tried again.
        self._kill_all()
        if self._started is not None:
            wait_for(self._started.root_pid, _GONE_TIMEOUT_S)
            self._started = None
        return {"error": f"restoring failed: {problem}"}

    def _thaw(self, *, is_same_boot: bool = False) -> dict[str, Any]:
        if self._state is KeeperState.RUNNING:
            return {}
        if self._state is KeeperState.FROZEN and self._started is None:
            return self._restore(is_same_boot=is_same_boot)
        if self._state is not KeeperState.FROZEN or self._freezer is None:
            return {"error": f"the sandbox is {self._state}"}
        if problem := self._freezer.thaw():
            return {"error": problem}
        self._state = KeeperState.RUNNING
        return {}

    def _copy(self, target: Path) -> dict[str, Any]:
        """Write a copy of the sandbox down; it goes on as it was, or sleeps on."""
        was_running = self._state is KeeperState.RUNNING
        answer = self._freeze()
        if "error" in answer:
            return answer
        try:
            kind = copy_frozen(self._spec, target, has_own_kernel=self._runtime.has_own_kernel)
        except OSError as exc:
            answer = {"error": f"copying failed: {exc}"}
        else:
            answer = {"kind": kind}
        return answer | (self._thaw(is_same_boot=True) if was_running else {})

    def _terminate(self, grace_s: float) -> None:
        self._reason = self._reason or "terminated"
        if self._state is KeeperState.FROZEN and self._started is None:
            self._end(0)
            return
        self._thaw()
        if self._started is not None and grace_s > 0:
            ask_to_end(self._started)
        deadline = time.monotonic() + max(0.0, grace_s)
        self._kill_at = min(self._kill_at or deadline, deadline)

    def _tell_ready(self, message: dict[str, Any]) -> None:
        if self._ready_fd < 0:
            return
        # The one who started us may be gone by now.
        with contextlib.suppress(OSError):
            os.write(self._ready_fd, json.dumps(message).encode() + b"\n")
        if self._exit is None:
            os.close(self._ready_fd)
        self._ready_fd = -1


def main(argv: list[str]) -> int:
    """Detach and keep. The starting process returns at once; what follows is told by READY_FD, log and `exit.json`."""
    if os.fork() == 0:
        os.setsid()
        os._exit(keep(Path(argv[1]).absolute(), int(argv[2]) if len(argv) > 2 else -1))
    return 0


def keep(spec_file: Path, ready_fd: int) -> int:
    """What a keeper does, in a process of one thread, with a session of its own, that is nothing else; its exit code.

    Args:
        spec_file: The sandbox.
        ready_fd: As READY_FD; -1 for nobody.
    """
    os.chdir("/")
    os.umask(0o077)
    os.environ.clear()
    try:
        spec = SandboxSpec.from_json(spec_file.read_text())
        spec.check()
        return _keep(spec, ready_fd)
    except Exception:  # noqa: BLE001 - a process boundary: its sandbox must not end without a word
        import traceback

        say(f"keeper failed:\n{traceback.format_exc()}")
        return 1


def _keep(spec: SandboxSpec, ready_fd: int) -> int:
    if ready_fd >= 0:
        os.set_inheritable(ready_fd, False)
    if lock_patiently(spec) is None:
        if ready_fd >= 0:
            message = {"error": f"sandbox `{spec.sandbox_id}` has a keeper already"}
            os.write(ready_fd, json.dumps(message).encode() + b"\n")
        return 1
    return Keeper(spec, ready_fd).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
