"""What an isolated sandbox sees of a system, read-only, and the small files of `/etc` that are our own.

The system is this machine's, or that of a base: a folder with a root of its own, which `localcloud/bases` has prepared.
"""

from __future__ import annotations

import stat
from pathlib import Path

from sbxtui.localcloud.runtimes.base import readable_path

GUEST_UID = 1000
TREE, CONTROL, HOME = "/opt/sbx/guest", "/run/sbx", "/home/sandbox"
# A second `/proc`, in a sandbox with a kernel of its own.
KERNEL_PROC = "/opt/sbx/proc"
_CONNECT = f"{TREE}/sbxguest/connect.py"

# What a sandbox has for itself, whatever a base has there.
_OF_SANDBOXES = frozenset({"proc", "sys", "dev", "tmp", "run", "work", "home", "root", "opt", "boot"})
ETC_FROM_HOST = (
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/pki",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/protocols",
    "/etc/services",
)
ETC_OF_OURS = {
    "/etc/passwd": (
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
        f"sandbox:x:{GUEST_UID}:{GUEST_UID}:sandbox:/home/sandbox:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "/etc/group": f"root:x:0:\nsandbox:x:{GUEST_UID}:\nnogroup:x:65534:\n",
    "/etc/resolv.conf": "# This sandbox has no network.\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
}


def etc_of_ours(hostname: str, base: str = "") -> dict[str, str]:
    """The small files of `/etc` of a sandbox that is called so; a base has all but those that tell the name."""
    return {
        **({} if base else ETC_OF_OURS),
        "/etc/hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost\n",
        "/etc/hostname": f"{hostname}\n",
    }


def system_links(base: str = "") -> dict[str, str]:
    """`/bin` and its like where the system has links: each path and what it points to."""
    paths = _of_base(base) if base else _top_folders()
    return {_inside(path, base): str(path.readlink()) for path in paths if path.is_symlink()}


def system_folders(base: str = "") -> dict[str, str]:
    """Folders and files of the system that are there read-only, and where the host has each."""
    paths = _of_base(base) if base else [Path("/usr"), *_top_folders()]
    found = [path for path in paths if path.exists() and not path.is_symlink()]
    if not base and readable_path(Path("/etc")):
        found += [path for name in ETC_FROM_HOST if _is_readable(path := Path(name))]
    return {_inside(path, base): str(path) for path in found}


def _is_readable(path: Path) -> bool:
    """The same of what lies in an open folder: of a link alone, the way has to be looked at."""
    try:
        info = path.lstat()
    except OSError:
        return False
    return readable_path(path) if stat.S_ISLNK(info.st_mode) else bool(info.st_mode & 0o004)


def _top_folders() -> list[Path]:
    return [Path("/") / name for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")]


def _of_base(base: str) -> list[Path]:
    root = Path(base)
    top = [path for path in sorted(root.iterdir()) if path.name not in _OF_SANDBOXES]
    return top + [path for path in sorted((root / "opt").iterdir()) if path.name != "sbx"]


def _inside(path: Path, base: str) -> str:
    return f"/{path.relative_to(base)}" if base else str(path)


def program_links(python: str) -> dict[str, str]:
    """Programs of the image, behind all others on PATH: a Python, and a way out for what knows no proxy."""
    own = dict.fromkeys(("python", "python3"), python)
    return {f"/opt/sbx/bin/{name}": program for name, program in {**own, "sbx-connect": _CONNECT}.items()}
