"""What a sandbox begins with: nothing, what was saved of it, a copy of another, or the golden image of its kind."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud.copies import COPY_FOLDER, FILES, find_copy, take_files
from sbxtui.localcloud.golden import find_golden, is_refused, key_of, refuse
from sbxtui.localcloud.keeper_end import say
from sbxtui.localcloud.keeper_save import find_saved
from sbxtui.localcloud.runtimes.base import Runtime, Started, StartRequest
from sbxtui.localcloud.runtimes.gvisor import bundle_of
from sbxtui.localcloud.spec import SandboxSpec

# In front of the mark of a restore: what goes on there is another sandbox from now on.
_OTHER = "other "
# Used up once it runs.
BEGINNING_FOLDERS = ("saved", COPY_FOLDER)


@dataclass(frozen=True, slots=True)
class Beginning:
    """`kind` is `cold`, `saved`, `copy` or `golden`; `folder` holds what a kernel wrote, for all but the first.

    `prepared` is what the sandbox is started with then, `key` that of its golden image, also of one still to be made.
    """

    kind: str
    prepared: Mapping[str, str]
    folder: Path | None = None
    key: str = ""

    @property
    def is_another(self) -> bool:
        """Whether what it goes on from was not this sandbox: names, boot id and identity must be renewed."""
        return self.kind in ("copy", "golden")

    def mark(self) -> str:
        """What tells the guest that it was restored, and as whom; new each time."""
        return (_OTHER if self.is_another else "") + secrets.token_hex(16)


def new_boot_id() -> str:
    """What a kernel calls one start of its own. Not by `uuid`: importing that takes a tenth of a keeper's start."""
    text = secrets.token_hex(16)
    return "-".join((text[:8], text[8:12], f"4{text[13:16]}", f"8{text[17:20]}", text[20:]))


def find_beginning(spec: SandboxSpec) -> Beginning:
    """What there is of a sandbox in its own folder. Files of a copy are in their place afterwards."""
    saved = find_saved(spec.sandbox_dir)
    if saved is not None:
        return Beginning("saved", saved.prepared, saved.folder)
    copy = find_copy(spec.sandbox_dir / COPY_FOLDER)
    if copy is not None and copy.kind != FILES:
        return Beginning("copy", copy.prepared, copy.folder)
    if copy is not None:
        take_files(spec.sandbox_dir)
    return Beginning("cold", spec.prepared)


def start_from(runtime: Runtime, request: StartRequest, beginning: Beginning) -> tuple[Started, Beginning]:
    """Start the sandbox, from a golden image where there is one and it would be cold; what it really began with.

    Raises:
        RuntimeUnavailable: It did not come up; nothing is left running.
    """
    if beginning.folder is not None:
        if request.uid is not None and request.gid is not None:
            os.chown(beginning.folder, request.uid, request.gid)
        return runtime.start(replace(request, saved_dir=beginning.folder)), beginning
    if not runtime.has_own_kernel:
        return runtime.start(request), beginning
    return _start_golden(runtime, request, beginning)


def _start_golden(runtime: Runtime, request: StartRequest, beginning: Beginning) -> tuple[Started, Beginning]:
    prepared, images_dir = request.spec.prepared, request.spec.image_tree_parent
    key = key_of(bundle_of(request), prepared)
    golden = find_golden(images_dir, key)
    if golden is None:
        wanted = "" if is_refused(images_dir, key) else key
        return runtime.start(request), replace(beginning, key=wanted)
    try:
        started = runtime.start(replace(request, saved_dir=golden.folder))
    except RuntimeUnavailable as exc:
        say(f"the golden image does not start, so this starts cold: {exc}")
        refuse(images_dir, key)
        return runtime.start(request), beginning
    return started, Beginning("golden", prepared, golden.folder, key)
