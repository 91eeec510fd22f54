"""The arguments of bubblewrap for a root that can be written: overlays of the kernel, over layers and a system."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sbxtui.localcloud.ownroot import SCRATCH, UPPER, layers_of, part_name
from sbxtui.localcloud.runtimes.base import StartRequest
from sbxtui.localcloud.runtimes.idmap import show_as
from sbxtui.localcloud.runtimes.system_root import system_parts
from sbxtui.localcloud.spec import SandboxSpec

# What a start makes anew, so that no layer has it.
_FRESH = {"/run": "0755", "/opt/sbx": "0755"}
_FRESH_BYTES = 16 << 20
# In builds: where apt is told what it must know of a place that has one user alone, and of files that are the host's.
# Such a file cannot be linked to or changed, as dpkg does with those of a package that it replaces; a copy can.
APT_CONF = "/run/sbx-apt.conf"
_OWN = "/run/sbx-own.sh"
_OWN_SCRIPT = """\
while read -r deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -t --quoting-style=literal | while read -r name; do
        file="/${name#./}"
        if [ -f "$file" ] && [ ! -L "$file" ] && [ ! -O "$file" ] && [ -w "${file%/*}" ]; then
            cp -p "$file" "$file.sbx-own" && mv -f "$file.sbx-own" "$file"
        fi
    done
done
"""
BUILD_TEXTS = {
    # Of the files in `/etc` that packages bring, this machine's are left out where they are nobody's business.
    APT_CONF: f'APT::Sandbox::User "root";\nDPkg::Pre-Install-Pkgs:: "/bin/sh {_OWN}";\n'
    'DPkg::Options:: "--force-confdef";\nDPkg::Options:: "--force-confold";\n',
    _OWN: _OWN_SCRIPT,
}


def root_arguments(spec: SandboxSpec) -> list[str]:
    """bwrap options for the root itself, and what is over it but is nobody's to keep."""
    arguments: list[str] = []
    for path, grounds in _parts(spec.prepared).items():
        name = part_name(path)
        above = [layer / name for layer in layers_of(spec.sandbox_dir) if (layer / name).is_dir()]
        for folder in [*map(Path, grounds), *above]:
            arguments += ["--overlay-src", str(folder)]
        written, scratch = (str(spec.sandbox_dir / kind / name) for kind in (UPPER, SCRATCH))
        arguments += ["--overlay", written, scratch, path]
    for path, mode in _FRESH.items():
        arguments += ["--perms", mode, "--size", str(_FRESH_BYTES), "--tmpfs", path]
    return [*arguments, "--dir", "/root", "--perms", "1777", "--dir", "/tmp"]


def make_upper(spec: SandboxSpec, uid: int | None) -> None:
    """The folders into which the root is written, of `uid` where that is not the caller's own."""
    for kind in (UPPER, SCRATCH):
        for path in ("", *_parts(spec.prepared)):
            folder = spec.sandbox_dir / kind / (part_name(path) if path else "")
            if not folder.is_dir():
                folder.mkdir()
                folder.chmod(0o755 if path else 0o711)
                if uid is not None:
                    os.chown(folder, uid, uid)


def show_layers(request: StartRequest) -> None:
    """Let the sandbox's user own what is below its root; to be called by root, before it becomes that user.

    Raises:
        OSError: The kernel cannot.
    """
    if request.uid is None:
        return
    spec = request.spec
    grounds = [Path(path) for found in _parts(spec.prepared).values() for path in found if path not in system_parts()]
    layers = [part for layer in layers_of(spec.sandbox_dir) for part in layer.iterdir()]
    owners = {folder: folder.stat().st_uid for folder in [*grounds, *layers]}
    show_as(request.uid, {folder: owner for folder, owner in owners.items() if owner != request.uid})


def tmpfs_paths() -> tuple[str, ...]:
    """What of such a root lies in memory, beside what every sandbox has there."""
    return tuple(_FRESH)


def part_paths(prepared: Mapping[str, str]) -> tuple[str, ...]:
    """Where such a root's parts are inside."""
    return tuple(_parts(prepared))


def _parts(prepared: Mapping[str, str]) -> dict[str, list[str]]:
    """Where the parts of the root are, and of each what is below all layers, the lowest first."""
    if base := prepared.get("base", ""):
        return {"/": [base]}
    system = Path(prepared["system"])
    parts = {"/": [str(system / part_name("/"))]}
    return parts | {path: [source, str(system / part_name(path))] for path, source in system_parts().items()}
