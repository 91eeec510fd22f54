"""The folder runsc starts a sandbox from: `config.json` and the skeleton of its root, which no path of the host is in
but what is named here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sbxtui.localcloud.runtimes.base import Interpreter
from sbxtui.localcloud.runtimes.skeleton import hand_over, write_skeleton
from sbxtui.localcloud.runtimes.system_view import (
    CONTROL,
    HOME,
    KERNEL_PROC,
    TREE,
    etc_of_ours,
    system_folders,
    system_links,
)

# What the guest's own programs need to start jobs as another user; jobs themselves keep none.
_CAPABILITIES = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETUID", "CAP_SETGID", "CAP_KILL")
# What the first process alone keeps, over its own kernel: a sandbox that goes on as another one gets another name.
_OF_THE_FIRST = ("CAP_SETPCAP", "CAP_SYS_ADMIN")
_NAMESPACES = ("pid", "mount", "uts", "ipc", "network", "user")
# The distribution's, which are often missing, are setuid programs for ranges of users; one's own needs no privilege.
_TOOLS = {
    "newuidmap": '#!/bin/sh\necho "$2 $3 $4" > "/proc/$1/uid_map"\n',
    "newgidmap": '#!/bin/sh\necho deny > "/proc/$1/setgroups"\necho "$2 $3 $4" > "/proc/$1/gid_map"\n',
}
_OPEN_FILES = 65_536
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_READ_ONLY = ("bind", "ro", "nosuid", "nodev")


@dataclass(frozen=True, slots=True)
class Bundle:
    """One sandbox for runsc. Its root is `uid` of the host, who runs runsc. Sizes are bytes; `binds` maps paths inside
    to what the host puts there, read-only, and so does `shown`, for what is each sandbox's own. `address_bytes` bounds
    what one process may map, `file_bytes` one file. With `disk_bytes`, where jobs may write for good there are disks of
    that size.
    """

    folder: Path
    command: Sequence[str]
    env: Mapping[str, str]
    uid: int
    gid: int
    tmp_bytes: int
    shm_bytes: int
    address_bytes: int
    file_bytes: int
    disk_bytes: int = 0
    workdir: str = "/work"
    hostname: str = "sandbox"
    control_dir: Path | None = None
    boot_id: str = ""
    binds: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    # The root of another system than this machine's, which `binds` are of.
    base: str = ""

    @property
    def root_dir(self) -> Path:
        """The skeleton; runsc keeps everything that is written inside in one file in it."""
        return self.folder / "root"

    @property
    def tools_dir(self) -> Path:
        """The only programs runsc finds by name: what gives a user namespace the one user there is to give."""
        return self.folder / "bin"

    @property
    def disks(self) -> dict[str, Path]:
        """Disks by where they are inside; each is one file in that folder of the host, and is empty at a cold start."""
        return {self.workdir: self.folder / "work", HOME: self.folder / "home"} if self.disk_bytes else {}

    def write(self, *, owner: int | None = None) -> None:
        """Make folder, skeleton and `config.json`; what is there already stays.

        Args:
            owner: Who gets the folders; None leaves them to the caller.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shown = {path: source for path, source in self.shown.items() if not path.startswith("/proc/")}
        write_skeleton(
            self.root_dir,
            folders=(self.workdir, "/tmp", "/proc", KERNEL_PROC, "/sys", "/dev", HOME, CONTROL, "/opt/sbx/bin"),
            binds={**self.binds, **shown},
            texts=etc_of_ours(self.hostname, self.base),
            links={**system_links(self.base), **self.links},
        )
        for disk in self.disks.values():
            disk.mkdir(exist_ok=True)
        self.tools_dir.mkdir(exist_ok=True)
        for name, script in _TOOLS.items():
            (self.tools_dir / name).write_text(script)
            (self.tools_dir / name).chmod(0o755)
        (self.folder / "config.json").write_text(json.dumps(self.config()))
        (self.folder / "boot_id").write_text(f"{self.boot_id}\n")
        (self.folder / "boot_id").chmod(0o644)
        hand_over(self.folder, owner)
        self.folder.chmod(0o700)

    def config(self) -> dict[str, Any]:
        """The OCI document."""
        limits = {"RLIMIT_NOFILE": _OPEN_FILES, "RLIMIT_CORE": 0, "RLIMIT_AS": self.address_bytes}
        limits["RLIMIT_FSIZE"] = self.file_bytes
        return {
            "ociVersion": "1.0.2",
            "root": {"path": str(self.root_dir), "readonly": False},
            "hostname": self.hostname,
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": list(self.command),
                "env": [f"{name}={value}" for name, value in self.env.items()],
                "cwd": self.workdir,
                "noNewPrivileges": True,
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), (*_CAPABILITIES, *_OF_THE_FIRST)),
                "rlimits": [{"type": name, "soft": value, "hard": value} for name, value in limits.items()],
            },
            "mounts": self._mounts(),
            "annotations": self._annotations(),
            "linux": {
                "namespaces": [{"type": kind} for kind in _NAMESPACES],
                "uidMappings": [{"containerID": 0, "hostID": self.uid, "size": 1}],
                "gidMappings": [{"containerID": 0, "hostID": self.gid, "size": 1}],
            },
        }

    def _mounts(self) -> list[dict[str, Any]]:
        mounts = [
            _mount("/proc", "proc"),
            # What the kernel itself tells, where its own place tells what a sandbox shall see.
            _mount(KERNEL_PROC, "proc"),
            _mount("/dev", "tmpfs", "nosuid", "mode=755", "size=65536"),
            _mount("/dev/pts", "devpts", "nosuid", "noexec", "ptmxmode=0666", "mode=0620"),
            _mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777", f"size={self.shm_bytes}"),
            _mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777", f"size={self.tmp_bytes}"),
            _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
            _mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev"),
        ]
        if self.boot_id:
            # A kernel that was restored has the one of the first start, and so have all that were from one image.
            mounts.append(_mount(_BOOT_ID, "bind", *_READ_ONLY, source=str(self.folder / "boot_id")))
        over = etc_of_ours(self.hostname, self.base) if self.base else {}
        own = {path: str(self.root_dir / path[1:]) for path in over}
        for path, source in {**self.shown, **self.binds, **own}.items():
            mounts.append(_mount(path, "bind", *_READ_ONLY, source=source))
        for path, folder in self.disks.items():
            mounts.append(_mount(path, "bind", "rw", "nosuid", "nodev", source=str(folder)))
        if self.control_dir is not None:
            options = ("bind", "rw", "nosuid", "nodev", "noexec")
            mounts.append(_mount(CONTROL, "bind", *options, source=str(self.control_dir)))
        return mounts

    def _annotations(self) -> dict[str, str]:
        """A folder that nobody else looks into may be a file system of runsc's own with a size: that is told so."""
        told: dict[str, str] = {}
        for folder in self.disks.values():
            hint = f"dev.gvisor.spec.mount.{folder.name}."
            told |= {f"{hint}source": str(folder), f"{hint}type": "tmpfs", f"{hint}share": "container"}
            told[f"{hint}options"] = f"rw,nosuid,nodev,mode=0755,size={self.disk_bytes}"
        return told


def host_binds(interpreter: Interpreter, image_tree: str, base: str = "") -> dict[str, str]:
    """What a sandbox sees of the host: a system, the guest's copy, and the Python that runs it."""
    binds = system_folders(base)
    if interpreter.prefix:
        binds[interpreter.prefix] = interpreter.source
    if image_tree:
        binds[TREE] = image_tree
    return binds


def _mount(path: str, kind: str, *options: str, source: str = "") -> dict[str, Any]:
    return {"destination": path, "type": kind, "source": source or kind, "options": list(options)}
