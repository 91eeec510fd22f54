"""Golden images: what the kernel of a fresh sandbox wrote down right before it is told who it is, to start others from.

One is good for exactly what it was made with: runsc, kernel, processor, guest, interpreter, sizes and environment. All
of that is in its key; so after any change there is none, and a sandbox starts cold.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sbxtui.localcloud.copies import Copy, find_copy
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.runtimes.gvisor_bundle import Bundle

PREFIX = "golden-"
_LAYOUT = "1"
_REFUSED = ".refused"


def key_of(bundle: Bundle, prepared: Mapping[str, str]) -> str:
    """What an image must have been made with to be good for this sandbox."""
    # What is each sandbox's own is renewed after the start, and does not count.
    common = replace(bundle, folder=Path("/"), uid=0, gid=0, hostname="", control_dir=Path("/"), boot_id="-")
    common = replace(common, shown=dict.fromkeys(bundle.shown, "-"))
    made_with = [_LAYOUT, common.config(), sorted(prepared.items()), _machine()]
    return hashlib.sha256(json.dumps(made_with).encode()).hexdigest()[:32]


def find_golden(images_dir: Path, key: str) -> Copy | None:
    """The image for a key; None if there is none."""
    return find_copy(images_dir / f"{PREFIX}{key}")


def is_refused(images_dir: Path, key: str) -> bool:
    """Whether one was made for this key that does not start: then none is made again."""
    return (images_dir / f"{PREFIX}{key}{_REFUSED}").exists()


def refuse(images_dir: Path, key: str) -> None:
    """The image for a key does not start: nobody shall try again."""
    with contextlib.suppress(OSError):
        (images_dir / f"{PREFIX}{key}{_REFUSED}").touch(mode=0o600)
    remove_trees([images_dir / f"{PREFIX}{key}"])


def shelve(saved: Copy, images_dir: Path, key: str) -> None:
    """Make what a fresh sandbox saved the image for a key; another that is there already stays.

    Raises:
        OSError: It cannot be.
    """
    for file in saved.folder.iterdir():
        # Nothing in it is anybody's: every sandbox's user may read it, and nobody write.
        file.chmod(0o444)
    saved.folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(saved.folder, 0, 0)
        for file in saved.folder.iterdir():
            os.chown(file, 0, 0)
    with contextlib.suppress(FileExistsError):
        saved.folder.rename(images_dir / f"{PREFIX}{key}")


def _machine() -> str:
    features = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - at each start
        features = next((line for line in file if line.startswith(("flags", "Features"))), "")
    return f"{os.uname().release} {os.uname().version} {features}"
