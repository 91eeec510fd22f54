"""Whether gVisor works here: which runsc is used, and whether it starts every time. Never fetches anything."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.core.text import harmless_line
from sbxtui.localcloud.limits import MIB
from sbxtui.localcloud.runtimes.base import Probe
from sbxtui.localcloud.runtimes.bubblewrap_probe import PROBE_UID
from sbxtui.localcloud.runtimes.gvisor_bundle import Bundle, host_binds
from sbxtui.localcloud.runtimes.gvisor_choice import digest_of, find_runsc
from sbxtui.localcloud.runtimes.interpreter import choose_interpreter
from sbxtui.localcloud.runtimes.reachable import boot_id_here, reachable_copy
from sbxtui.localcloud.runtimes.runsc import CONTAINER, PLATFORMS, common_flags
from sbxtui.localcloud.runtimes.trial import tried
from sbxtui.localcloud.spec import write_private

STARTS = 8
_ANSWERS_NAME = "runsc-probes.json"
_AT_ONCE = 4
_START_TIMEOUT_S = 20.0
# Some builds lose track of their own threads: several at once show it.
_TRIAL = (
    "import threading\n"
    "threads = [threading.Thread(target=sum, args=(range(20000),)) for _ in range(16)]\n"
    "[t.start() for t in threads]; [t.join() for t in threads]; print('alive')"
)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What trying a binary gave. A failure counts until the machine is started again."""

    is_ok: bool
    version: str
    platform: str
    why_not: str
    boot_id: str


def probe(copies_dir: Path) -> Probe:
    """See `Runtime.probe`. Answers are kept in `copies_dir`."""
    try:
        found = find_runsc(copies_dir)
    except RuntimeUnavailable as exc:
        return Probe(False, why_not=exc.message)
    if found is None:
        return Probe(False, why_not="no runsc found; `sbx local setup` fetches it", is_there=False)
    return probe_program(found, copies_dir)


def probe_program(found: Path, copies_dir: Path, *, afresh: bool = False) -> Probe:
    """Try this very program; `afresh` forgets what was answered before."""
    try:
        # Newer releases need what lies beside them.
        binary = reachable_copy("runsc", found, found.parent.glob("runsc-*"), copies_dir)
        key = f"{digest_of(binary)[:24]} {os.uname().release} {'dropped' if os.geteuid() == 0 else 'own'}"
    except OSError as exc:
        return Probe(False, why_not=f"{found} cannot be read: {exc.strerror or exc}")
    answers = _load(copies_dir)
    answer = None if afresh else answers.get(key)
    if answer is None or not (answer.is_ok or answer.boot_id == boot_id_here()):
        answer = _try(binary, copies_dir)
        _keep(copies_dir, {**answers, key: answer})
    why_not = f"runsc {answer.version} {answer.why_not}".replace("  ", " ") if answer.why_not else ""
    return Probe(
        answer.is_ok, version=answer.version, path=str(binary), why_not=why_not, how={"platform": answer.platform}
    )


def build_age(version: str, now: datetime | None = None) -> str:
    """How old a build is, by the day in its version: `2 years old`; empty when it names none."""
    found = re.search(r"(20\d\d)(\d\d)(\d\d)", version)
    if found is None:
        return ""
    with contextlib.suppress(ValueError):
        built = datetime(int(found[1]), int(found[2]), int(found[3]), tzinfo=UTC)
        days = ((now or datetime.now(UTC)) - built).days
        return f"{days // 365} years old" if days >= 730 else f"{max(1, days // 30)} months old"
    return ""


def _try(binary: Path, copies_dir: Path) -> _Answer:
    version = _version(binary)
    why_not = ""
    for platform in PLATFORMS:
        failures = _failed_starts(binary, platform, copies_dir)
        if not failures:
            return _Answer(True, version, platform, "", boot_id_here())
        why_not = why_not or f"failed {len(failures)} of {STARTS} starts: {failures[0]}"
        if len(failures) < STARTS:
            # It knows the platform and is unsound: on another one it would be the same program.
            break
    return _Answer(False, version, "", why_not, boot_id_here())


def _failed_starts(binary: Path, platform: str, copies_dir: Path) -> list[str]:
    """Start it as sandboxes are started; what each failed start said."""
    copies_dir.mkdir(parents=True, exist_ok=True)
    copies_dir.chmod(0o711)
    with tempfile.TemporaryDirectory(dir=copies_dir, prefix=".building-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        bundle = _bundle(Path(name) / "bundle", copies_dir)
        if _start(binary, platform, bundle, Path(name) / "0"):
            # Most that fails always fails at once; only then all eight are worth their time.
            platform_failures = [_start(binary, platform, bundle, Path(name) / f"again{n}") for n in range(STARTS)]
            return [failure for failure in platform_failures if failure]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            starts = pool.map(lambda n: _start(binary, platform, bundle, Path(name) / str(n)), range(1, STARTS))
            return [failure for failure in starts if failure]


def _bundle(folder: Path, copies_dir: Path) -> Bundle:
    interpreter = choose_interpreter(copies_dir, is_uid_dropped=os.geteuid() == 0)
    bundle = Bundle(
        folder=folder,
        command=[interpreter.executable, "-I", "-S", "-c", _TRIAL],
        env={},
        uid=PROBE_UID if os.geteuid() == 0 else os.geteuid(),
        gid=PROBE_UID if os.geteuid() == 0 else os.getegid(),
        tmp_bytes=MIB,
        shm_bytes=MIB,
        address_bytes=4096 * MIB,
        file_bytes=MIB,
        binds=host_binds(interpreter, ""),
    )
    bundle.write(owner=PROBE_UID if os.geteuid() == 0 else None)
    return bundle


def _start(binary: Path, platform: str, bundle: Bundle, state_dir: Path) -> str:
    """One start to its end; an empty string, or why it failed."""
    owner = PROBE_UID if os.geteuid() == 0 else None
    state_dir.mkdir(mode=0o700)
    if owner is not None:
        os.chown(state_dir, owner, owner)
    # Each has an overlay of its own in memory: they share one skeleton.
    flags = [flag for flag in common_flags(state_dir, platform) if not flag.startswith("--overlay2")]
    command = [str(binary), *flags, "--overlay2=root:memory", "run", f"--bundle={bundle.folder}", CONTAINER]
    env = {"PATH": str(bundle.tools_dir)}
    try:
        code, words = tried(command, env=env, owner=owner, group=owner, timeout_s=_START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no end within {_START_TIMEOUT_S:g} s"
    except OSError as exc:
        return exc.strerror or str(exc)
    if code == 0 and words.endswith("alive"):
        return ""
    return harmless_line(words, limit=160) or f"exit code {code}"


def _version(binary: Path) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        reply = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, env={}, check=False)
        first = reply.stdout.splitlines()[0] if reply.stdout else ""
        return harmless_line(first.removeprefix("runsc version "), limit=60)
    return ""


def _load(copies_dir: Path) -> dict[str, _Answer]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        raw = json.loads((copies_dir / _ANSWERS_NAME).read_text())
        return {key: _Answer(**values) for key, values in raw.items()}
    return {}


def _keep(copies_dir: Path, answers: dict[str, _Answer]) -> None:
    with contextlib.suppress(OSError):
        write_private(copies_dir / _ANSWERS_NAME, json.dumps({key: asdict(one) for key, one in answers.items()}))
