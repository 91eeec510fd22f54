"""A sandbox of a benchmark as somebody would start it without us."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.runtime import Lab, bwrap_words, guest_words, wait_healthy
from sbxtui.localcloud.keeper_processes import descendants, send_signal
from sbxtui.localcloud.limits import MIB
from sbxtui.localcloud.runtimes.base import Interpreter, guest_command
from sbxtui.localcloud.runtimes.gvisor_bundle import Bundle, host_binds
from sbxtui.localcloud.runtimes.runsc import CONTAINER, common_flags
from sbxtui.localcloud.runtimes.system_view import CONTROL, TREE
from sbxtui.localcloud.spec import SandboxSpec

_PARKED_S = 20.0


@dataclass(slots=True)
class ByHand:
    """One sandbox, by bubblewrap or runsc alone. `end` it."""

    lab: Lab
    spec: SandboxSpec
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, lab: Lab) -> ByHand:
        """One that was not yet."""
        spec = lab.spec()
        for folder in (spec.sandbox_dir / "work", spec.control_dir):
            folder.mkdir(parents=True)
        return cls(lab, spec)

    @property
    def folder(self) -> Path:
        """Its own."""
        return self.spec.sandbox_dir

    def start(self, image: Path | None = None) -> None:
        """Until its guest answers; from what was saved, where that is given."""
        if self.spec.runtime == "bubblewrap":
            command = [*bwrap_words(self.lab, self.spec, self.folder / "work"), *guest_words(self.lab)]
            null = subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)
        else:
            self._start_gvisor(image)
        wait_healthy(self.spec.control_dir)

    def suspend(self) -> None:
        """To disk, where that can be; else it is stopped, all of it: a signal that was sent has stopped nothing yet."""
        if self.process is not None:
            while any(one.state != "T" for one in descendants(self.process.pid).values() if one.is_alive):
                self._signal_all(signal.SIGSTOP)
        else:
            self.save(self.folder / "saved")

    def resume(self) -> None:
        """Undo that."""
        if self.process is not None:
            self._signal_all(signal.SIGCONT)
            wait_healthy(self.spec.control_dir)
        else:
            self.start(self.folder / "saved")

    def save(self, image: Path) -> None:
        """Write it down and end it."""
        (self.spec.control_dir / "open").unlink(missing_ok=True)
        self._runsc("kill", CONTAINER, "10")
        deadline = time.monotonic() + _PARKED_S
        while os.path.lexists(self.spec.bridge_socket) and time.monotonic() < deadline:
            time.sleep(0.002)
        shutil.rmtree(image, ignore_errors=True)
        image.mkdir()
        self._runsc(
            "checkpoint", "-compression=none", "-exclude-committed-zero-pages", f"--image-path={image}", CONTAINER
        )
        self._runsc("delete", "-force", CONTAINER)

    def end(self) -> None:
        """With all it started."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        else:
            subprocess.run(self._words("delete", "-force", CONTAINER), capture_output=True, check=False)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self.process is not None
        send_signal(descendants(self.process.pid), number)

    def _start_gvisor(self, image: Path | None) -> None:
        prepared = self.lab.prepared.prepared
        interpreter = Interpreter.from_map(prepared)
        bundle = Bundle(
            folder=self.folder / "gvisor",
            command=guest_command(interpreter.executable, TREE, bridge_socket=f"{CONTROL}/in.sock", nproc=0),
            env={"PATH": "/usr/bin:/bin", "HOME": "/home/sandbox", "SBX_OWN_KERNEL": "1", "SBX_JOB_UID": "1000"},
            uid=os.geteuid(),
            gid=os.getegid(),
            tmp_bytes=64 * MIB,
            shm_bytes=64 * MIB,
            address_bytes=1024 * MIB,
            file_bytes=512 * MIB,
            disk_bytes=512 * MIB,
            control_dir=self.spec.control_dir,
            binds=host_binds(interpreter, prepared["image_tree"]),
            links={f"/opt/sbx/bin/{name}": interpreter.executable for name in ("python", "python3")},
        )
        shutil.rmtree(bundle.folder, ignore_errors=True)
        bundle.write()
        if image is None:
            self._runsc("run", f"--bundle={bundle.folder}", "-detach", CONTAINER)
            return
        self._runsc("restore", f"--image-path={image}", f"--bundle={bundle.folder}", "-detach", CONTAINER)
        (self.spec.control_dir / "open").write_text("by hand")

    def _words(self, *words: str) -> list[str]:
        prepared = self.lab.prepared.prepared
        state_dir = self.spec.control_dir.with_name(self.spec.control_dir.name + ".r")
        return [prepared["program"], *common_flags(state_dir, prepared["platform"]), *words]

    def _runsc(self, *words: str) -> None:
        # To a file, never a pipe: what it leaves behind would hold that open.
        with (self.folder / "runsc.log").open("ab") as said:
            env = {"PATH": str(self.folder / "gvisor" / "bin")}
            command = self._words(*words)
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env, cwd="/", check=True)


@contextmanager
def by_hand_of(lab: Lab) -> Iterator[ByHand]:
    """One that is ended afterwards."""
    hand = ByHand.of(lab)
    try:
        yield hand
    finally:
        hand.end()
