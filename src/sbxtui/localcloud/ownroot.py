"""A sandbox's own root: what of it lies where on the host, and how that becomes the ground another one stands on.

A root is made of parts, each of them an overlay of the kernel's: `/` and, where this machine's own system is below,
`/usr` and its like. Every layer is a folder with a folder for each part in it, named as `part_name` says; the layers of
a sandbox are numbered, and never written to again. What the sandbox itself writes is in `UPPER`, which looks the same.
"""

from __future__ import annotations

from pathlib import Path

from sbxtui.localcloud.spec import SandboxSpec

LAYERS, UPPER, SCRATCH = "layers", "root", "rootwork"
# The kernel takes the names of all layers of a mount on one page.
MAX_LAYERS = 16


def has_own_root(spec: SandboxSpec) -> bool:
    """Whether the whole root of a sandbox can be written: in builds, and in what was made of one."""
    return spec.is_build or (spec.sandbox_dir / LAYERS).is_dir()


def layers_of(folder: Path) -> list[Path]:
    """The layers of a sandbox or of a copy, the lowest first."""
    above = folder / LAYERS
    return sorted(path for path in above.iterdir() if path.name.isdecimal()) if above.is_dir() else []


def part_name(path: str) -> str:
    """What the folder of a part is called, of a path inside: `/usr` is `usr`, `/var/lib/dpkg` is `var-lib-dpkg`."""
    return path.strip("/").replace("/", "-") or "top"


def seal(copy: Path) -> None:
    """Make what the sandbox of a finished copy wrote a layer, so that whoever goes on from it shares it.

    It stays what it is where there are layers enough: then everybody gets a copy. Blocking.
    """
    layers = layers_of(copy)
    written = copy / UPPER
    if not written.is_dir() or len(layers) >= MAX_LAYERS:
        return
    (copy / LAYERS).mkdir(mode=0o711, exist_ok=True)
    written.replace(copy / LAYERS / f"{len(layers):04}")
