"""Checking this machine and the context: what works, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from sbxtui._version import __version__
from sbxtui.control.local import find_local_cloud, local_cloud_log
from sbxtui.core.errors import SbxError
from sbxtui.core.model import Context, ContextKind
from sbxtui.core.text import counted, short_size
from sbxtui.core.values import dataclass
from sbxtui.home import private_dir
from sbxtui.services.network import has_own_network
from sbxtui.services.planes import ControlPlanes
from sbxtui.settings import Settings
from sbxtui.store.registry import Registry

_LITTLE_DISK_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. A `fail` stops daily work, a `warn` does not."""

    name: str
    status: Literal["ok", "warn", "fail"]
    words: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined. The store and the context are opened by their checks: both may be what is broken."""

    settings: Settings
    registry: Callable[[], Registry]
    planes: Callable[[], ControlPlanes]
    context: Callable[[], Context]


async def examine(patient: Patient) -> list[Check]:
    """Run every check; a check that breaks is itself a finding."""
    checks: list[tuple[str, Callable[[Patient], Awaitable[Check]]]] = [
        ("sbx", _program),
        ("home", _home),
        ("store", _store),
        ("context", _context),
        ("isolation", _isolation),
        ("limits", _limits),
        ("network", _network),
        ("disk", _disk),
    ]
    return [await _run(name, check, patient) for name, check in checks]


async def _run(name: str, check: Callable[[Patient], Awaitable[Check]], patient: Patient) -> Check:
    try:
        return await check(patient)
    except SbxError as exc:
        return Check(name, "fail", exc.message, exc.hint)


async def _program(patient: Patient) -> Check:
    """Docker ships another `sbx`: say which one a shell would start."""
    version = f"sbx {__version__}, Python {sys.version.split()[0]}"
    first = shutil.which("sbx")
    if first is None:
        return Check("sbx", "warn", f"{version}; no `sbx` on PATH", f"add {Path(sys.executable).parent} to PATH")
    if Path(first).resolve().parent == Path(sys.executable).parent.resolve() or _is_ours(Path(first)):
        return Check("sbx", "ok", f"{version}; PATH starts {first}")
    return Check("sbx", "warn", f"{version}; PATH starts another program: {first}", "call ours as `sbxtui`")


def _is_ours(program: Path) -> bool:
    try:
        return b"sbxtui" in program.read_bytes()[:4096]
    except OSError:
        return False


async def _home(patient: Patient) -> Check:
    home = patient.settings.home
    for folder in (home.config_dir, home.state_dir, home.cache_dir, home.log_dir):
        await asyncio.to_thread(private_dir, folder)
        if not os.access(folder, os.W_OK):
            return Check("home", "fail", f"{folder} cannot be written", "set SBX_HOME to a folder you can write")
    has_settings = await asyncio.to_thread(home.config_file.exists)
    return Check("home", "ok", f"{home.state_dir}; settings: {home.config_file}{'' if has_settings else ' (none yet)'}")


async def _store(patient: Patient) -> Check:
    rows = await asyncio.to_thread(patient.registry().list)
    known = counted(len(rows), "sandbox", "sandboxes")
    return Check("store", "ok", f"{patient.settings.home.store_file}: {known} known")


async def _context(patient: Patient) -> Check:
    context = patient.context()
    plane = await patient.planes().open(context)
    account_id = await plane.caller_account()
    where = plane.context.endpoint_url or context.region
    if context.account_id and context.account_id != account_id:
        words = f"`{context.name}` is for account {context.account_id}, the credentials are of {account_id}"
        return Check("context", "fail", words, "choose other credentials or another context")
    # Whose the credentials are does not tell that they are accepted: what `ls` does is tried, and costs nothing.
    await plane.list()
    return Check("context", "ok", f"`{context.name}` ({context.kind}): account {account_id} at {where}")


async def _isolation(patient: Patient) -> Check:
    if patient.context().kind is ContextKind.AWS:
        return Check("isolation", "ok", patient.context().isolation_words or "as the server at the endpoint gives it")
    cloud = find_local_cloud(patient.settings.home)
    if cloud is None:
        log_file = local_cloud_log(patient.settings.home)
        return Check("isolation", "fail", "the local cloud does not run", f"see {log_file}")
    if cloud.runtime == "process":
        return Check("isolation", "warn", cloud.isolation, "commands run as you, on this machine: trust them")
    words = ", ".join(filter(None, (cloud.isolation, cloud.runtime_version, cloud.runtime_age)))
    if why := cloud.shortfall.words:
        return Check("isolation", "warn", f"{words}; stronger ones do not work: {why}", "`sbx local setup`")
    return Check("isolation", "ok", words)


async def _limits(patient: Patient) -> Check:
    if patient.context().kind is ContextKind.AWS:
        return Check("limits", "ok", "the account's own: 8 hours a sandbox, and its quotas")
    cloud = find_local_cloud(patient.settings.home)
    return Check("limits", "ok", cloud.mode_words if cloud else "unknown: the local cloud does not run")


async def _network(patient: Patient) -> Check:
    context = patient.context()
    if context.kind is ContextKind.AWS:
        return Check("network", "ok", "egress connectors decide, at launch; without one: the image's managed egress")
    if not has_own_network(patient.settings.home, context):
        return Check("network", "warn", "sandboxes share this machine's network, and nothing is enforced")
    return Check("network", "ok", "sandboxes have none but what `--network` allows, through a proxy on this machine")


async def _disk(patient: Patient) -> Check:
    folder = patient.settings.home.state_dir
    free_bytes = shutil.disk_usage(folder if folder.exists() else folder.anchor).free
    words = f"{short_size(free_bytes)} free for sandboxes"
    if free_bytes < _LITTLE_DISK_BYTES:
        return Check("disk", "warn", words, "free some space, or set SBX_HOME to another disk")
    return Check("disk", "ok", words)
