"""What every isolated sandbox sees of the host's system, and the small files of `/etc` that are our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sbxtui.localcloud.runtimes.base import readable_path

GUEST_UID = 1000
TREE, CONTROL, HOME = "/opt/sbx/guest", "/run/sbx", "/home/sandbox"
_CONNECT = f"{TREE}/sbxguest/connect.py"

_ETC_FROM_HOST = (
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/pki",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
)
_ETC_OF_OURS = {
    "/etc/passwd": (
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
        f"sandbox:x:{GUEST_UID}:{GUEST_UID}:sandbox:/home/sandbox:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "/etc/group": f"root:x:0:\nsandbox:x:{GUEST_UID}:\nnogroup:x:65534:\n",
    "/etc/resolv.conf": "# This sandbox has no network.\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
}


def etc_of_ours(hostname: str) -> dict[str, str]:
    """The small files of `/etc` of a sandbox that is called so."""
    return {
        **_ETC_OF_OURS,
        "/etc/hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost\n",
        "/etc/hostname": f"{hostname}\n",
    }


def system_links() -> Iterator[tuple[str, str]]:
    """`/bin` and its like where the host has links: each path and what it points to."""
    for path in _top_folders():
        if path.is_symlink():
            yield str(path), str(path.readlink())


def system_folders() -> Iterator[str]:
    """Folders and files of the host that are there read-only, at their own paths."""
    yield "/usr"
    for path in _top_folders():
        if path.is_dir() and not path.is_symlink():
            yield str(path)
    yield from (name for name in _ETC_FROM_HOST if readable_path(Path(name)))


def _top_folders() -> Iterator[Path]:
    return (Path("/") / name for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"))


def program_links(python: str) -> dict[str, str]:
    """Programs of the image, behind all others on PATH: a Python, and a way out for what knows no proxy."""
    own = dict.fromkeys(("python", "python3"), python)
    return {f"/opt/sbx/bin/{name}": program for name, program in {**own, "sbx-connect": _CONNECT}.items()}
