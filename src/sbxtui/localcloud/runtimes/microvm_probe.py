"""Whether virtual machines work here: every gate is open, and one boots in time."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from sbxtui.core.text import harmless_line
from sbxtui.localcloud.runtimes.base import Probe, readable_path
from sbxtui.localcloud.runtimes.bubblewrap_probe import PROBE_UID
from sbxtui.localcloud.runtimes.gvisor_choice import digest_of
from sbxtui.localcloud.runtimes.microvm import SHOWN, Monitor, group_of_kvm, shared
from sbxtui.localcloud.runtimes.microvm_gates import PACKAGE, Machine, why_not
from sbxtui.localcloud.runtimes.reachable import boot_id_here, made_once
from sbxtui.localcloud.runtimes.skeleton import hand_over, write_skeleton
from sbxtui.localcloud.runtimes.system_view import ETC_OF_OURS, GUEST_UID, system_folders, system_links
from sbxtui.localcloud.runtimes.trial import tried
from sbxtui.localcloud.spec import write_private

BOOT_TIMEOUT_S = 10.0
_ANSWERS_NAME = "msb-boots.json"


def probe(copies_dir: Path) -> Probe:
    """See `Runtime.probe`. What a boot gave is kept in `copies_dir` until this machine is started again."""
    if shut := why_not(Machine.here()):
        return Probe(False, why_not=shut, is_there=False)
    try:
        program = _find_program(copies_dir)
        key = f"{digest_of(program)[:24]} {boot_id_here()} {'dropped' if os.geteuid() == 0 else 'own'}"
    except OSError as exc:
        return Probe(False, why_not=f"`{PACKAGE}` cannot be read: {exc.strerror or exc}")
    known = _load(copies_dir)
    if key not in known:
        known = {key: _boot(program, copies_dir)}
        with contextlib.suppress(OSError):
            write_private(copies_dir / _ANSWERS_NAME, json.dumps(known))
    version = importlib.metadata.version(PACKAGE)
    return Probe(not known[key], version=version, path=str(program), why_not=known[key])


def _find_program(copies_dir: Path) -> Path:
    """The package's `msb` where a dropped uid can run it; it looks for its kernel at `../lib`."""
    spec = importlib.util.find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    bundle = Path(next(iter(places or ()), "")) / "_bundled"
    program = bundle / "bin" / "msb"
    if os.geteuid() != 0 or readable_path(program):
        return program

    def fill(folder: Path) -> None:
        for part in ("bin", "lib"):
            shutil.copytree(bundle / part, folder / part)

    return made_once(copies_dir / f"msb-{digest_of(program)[:24]}", fill) / "bin" / "msb"


def _boot(program: Path, copies_dir: Path) -> str:
    """Boot a machine that does nothing; an empty string, or why it did not in time."""
    owner = PROBE_UID if os.geteuid() == 0 else None
    copies_dir.mkdir(parents=True, exist_ok=True)
    copies_dir.chmod(0o711)
    binds = system_folders()
    with tempfile.TemporaryDirectory(dir=copies_dir, prefix=".building-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        places = ("/proc", "/sys", "/dev", "/run", "/tmp")
        write_skeleton(folder / "root", folders=places, binds=binds, texts=ETC_OF_OURS, links=system_links())
        hand_over(folder / "root", owner)
        words = (f"--user={GUEST_UID}:{GUEST_UID}", "--memory=256M", *shared(binds, *SHOWN), str(folder / "root"))
        try:
            monitor = Monitor(str(program), folder / "h", folder / "state", owner, group_of_kvm(owner))
            monitor.make_folders()
            argv = monitor.argv(*words, "--", "/bin/true")
            code, said = tried(
                argv,
                env=monitor.env,
                owner=owner,
                group=monitor.gid,
                timeout_s=BOOT_TIMEOUT_S,
                executable=str(program),
            )
        except subprocess.TimeoutExpired:
            return f"a virtual machine did not boot within {BOOT_TIMEOUT_S:g} s"
        except OSError as exc:
            return f"a virtual machine did not start: {exc.strerror or exc}"
    told = harmless_line(said, limit=160)
    return "" if code == 0 else f"a virtual machine did not boot: {told or f'exit code {code}'}"


def _load(copies_dir: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        return {str(key): str(why) for key, why in json.loads((copies_dir / _ANSWERS_NAME).read_text()).items()}
    return {}
