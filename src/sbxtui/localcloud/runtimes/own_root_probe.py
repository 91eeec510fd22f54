"""Whether sandboxes can have a root of their own here: tried as they would have it, once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.core.text import harmless_line
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.runtimes.bubblewrap import AS_ROOT, BARE, system_arguments
from sbxtui.localcloud.runtimes.bubblewrap_probe import PROBE_UID, reachable_binary
from sbxtui.localcloud.runtimes.idmap import SHOW_MODULE
from sbxtui.localcloud.runtimes.reachable import make_copies_dir

_TIMEOUT_S = 15.0
_OF_LAYERS = 0x7FFF_0001
# A file of the ground is removed, its folder made anew, and another file changed where it is.
_TRY = "cd /probe && rm -r folder && mkdir folder && echo more >> file && test ! -e folder/file"


@dataclass(frozen=True, slots=True)
class OwnRoot:
    """With which bwrap roots of their own are made, or why there are none (else empty)."""

    program: str = ""
    problem: str = ""


@cache
def own_root(copies_dir: Path) -> OwnRoot:
    """What there is of it here. Blocking.

    Args:
        copies_dir: A folder on the disk of the sandboxes, through which a dropped uid passes.
    """
    folder = None
    try:
        make_copies_dir(copies_dir)
        # The distribution's, which sandboxes have else, may be older.
        program = str(reachable_binary(copies_dir, "--overlay-src"))
        folder = Path(tempfile.mkdtemp(dir=copies_dir, prefix=".building-"))
        return OwnRoot(program, _try(program, folder))
    except RuntimeUnavailable:
        return OwnRoot(problem="there is no bubblewrap of 0.11 or later")
    except (OSError, subprocess.SubprocessError) as exc:
        return OwnRoot(problem=harmless_line(str(exc)))
    finally:
        if folder is not None:
            remove_trees([folder])


def _try(binary: str, folder: Path) -> str:
    is_root = os.geteuid() == 0
    folder.chmod(0o755)
    ground, written, scratch = (folder / name for name in ("ground", "written", "scratch"))
    for made in (ground / "folder", written, scratch):
        made.mkdir(parents=True)
    for file in (ground / "file", ground / "folder" / "file"):
        file.write_text("")
    of_layers = dict.fromkeys((ground, *ground.rglob("*")), _OF_LAYERS)
    for path, owner in {**of_layers, written: PROBE_UID, scratch: PROBE_UID}.items() if is_root else ():
        os.chown(path, owner, owner)
    arguments = [binary, *BARE, *AS_ROOT, *system_arguments(), "--overlay-src", "/usr", "--overlay-src", str(ground)]
    arguments += ["--overlay", str(written), str(scratch), "/probe", "--", "/bin/sh", "-c", _TRY]
    # A program of its own: this process may have threads, and a view of the file system is a whole process's.
    shown = [sys.executable, "-m", SHOW_MODULE, str(ground), str(_OF_LAYERS), str(PROBE_UID)] if is_root else []
    reply = subprocess.run(
        [*shown, *arguments],
        capture_output=True,
        timeout=_TIMEOUT_S,
        env={},
        cwd="/",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if reply.returncode == 0:
        return ""
    return harmless_line(reply.stderr.decode(errors="replace")) or "the kernel's overlays do not work here"
