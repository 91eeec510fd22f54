"""Finding the local cloud of a home, and starting it when it is needed.

The local cloud is a process of its own that nobody imports: it is reached through the file it writes when it serves.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sbxtui.control.credentials import StaticCredentials
from sbxtui.core.errors import ControlUnavailable, SbxError, Unsupported
from sbxtui.core.isolation import NO_SHORTFALL, Shortfall
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass
from sbxtui.home import Home, private_dir
from sbxtui.identity import ProcessIdentity

_START_DEADLINE_S = 20.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class LocalCloud:
    """A local cloud that serves now. `isolation` is its runtime in words; `ca_file` signs its endpoints.

    `shortfall` says of each stronger runtime why it was not chosen. `mode` is `conformance` where the platform's
    limits hold, else `comfort`; `account_size` names the quotas that hold (`none`: none).
    """

    endpoint_url: str
    region: str
    account_id: str
    pid: int
    ca_file: Path
    credentials: StaticCredentials
    runtime: str
    isolation: str
    version: str
    time_scale: float
    runtime_version: str = ""
    runtime_age: str = ""
    shortfall: Shortfall = NO_SHORTFALL
    mode: str = "comfort"
    account_size: str = "none"

    @property
    def mode_words(self) -> str:
        """The mode with what it means."""
        if self.mode == "conformance":
            return f"conformance: the platform's limits hold (8 hours; quotas: {self.account_size})"
        quotas = "no quotas" if self.account_size == "none" else f"quotas: {self.account_size}"
        return f"comfort: no 8-hour cap, {quotas}"


def find_local_cloud(home: Home) -> LocalCloud | None:
    """The local cloud of `home` if one serves now; a file left by a dead one counts as none."""
    return next(filter(None, map(_told_in, _files(home))), None)


def has_died(home: Home) -> bool:
    """Whether the local cloud of `home` ended without taking its file away, as it does when it is stopped."""
    return find_local_cloud(home) is None and any(file.exists() for file in _files(home))


def _files(home: Home) -> tuple[Path, Path]:
    # The second is written where the home's disk is full. It may lie in a folder others can write to.
    return home.local_dir / "cloud.json", home.socket_dir / "cloud.json"


def _told_in(file: Path) -> LocalCloud | None:
    try:
        with file.open("rb") as stream:
            if os.fstat(stream.fileno()).st_uid != os.geteuid():
                return None
            facts = json.loads(stream.read())
        owner = ProcessIdentity(int(facts["pid"]), int(facts["start_ticks"]), str(facts["boot_id"]))
        return _decode(facts) if owner.is_alive else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def ensure_local_cloud(
    home: Home, *, time_scale: float = 1.0, isolation: str = "", is_conformant: bool = False
) -> LocalCloud:
    """The local cloud of `home`, started first when none serves.

    Args:
        home: Whose local cloud.
        time_scale: How much faster than real time its timers run, when it is started here.
        isolation: The runtime a newly started one must use; empty lets it choose the strongest that works.
        is_conformant: Whether a newly started one has the platform's limits.

    Raises:
        ControlUnavailable: It did not come up; the message holds the end of its log.
        Unsupported: This platform has no local cloud.
    """
    if cloud := find_local_cloud(home):
        return cloud
    if sys.platform != "linux":
        raise Unsupported(
            "the local cloud needs Linux", hint="use an AWS context: `sbx context add NAME --region REGION`"
        )
    process = _start(home, time_scale, isolation, is_conformant=is_conformant)
    try:
        async with asyncio.timeout(_START_DEADLINE_S):
            while (cloud := find_local_cloud(home)) is None:
                # Exit 0 means another starter won the lock; then its cloud appears in a moment.
                if process.poll():
                    raise ControlUnavailable(f"the local cloud did not start: {_log_tail(home)}", hint=_log_hint(home))
                await asyncio.sleep(_POLL_S)
    except TimeoutError as exc:
        message = f"the local cloud did not answer within {_START_DEADLINE_S:.0f} s: {_log_tail(home)}"
        raise ControlUnavailable(message, hint=_log_hint(home)) from exc
    return cloud


def local_cloud_log(home: Home) -> Path:
    """The local cloud's log file."""
    return home.log_dir / "localcloud.log"


def without_aws(environ: dict[str, str]) -> dict[str, str]:
    """An environment for our long-lived processes: no credentials or settings of AWS reach them."""
    return {key: value for key, value in environ.items() if not key.startswith("AWS_")}


def _start(home: Home, time_scale: float, isolation: str, *, is_conformant: bool) -> subprocess.Popen[bytes]:
    for folder in (home.state_dir, home.log_dir, home.local_dir):
        private_dir(folder)
    command = [sys.executable, "-m", "sbxtui.localcloud", "--home", str(home.state_dir)]
    command += ["--trees", str(home.trees_dir), "--sockets", str(home.socket_dir), "--logs", str(home.log_dir)]
    command += ["--time-scale", str(time_scale)]
    if isolation:
        command += ["--runtime", isolation]
    if is_conformant:
        command += ["--conformance"]
    try:
        with local_cloud_log(home).open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=without_aws(dict(os.environ)),
                cwd="/",
            )
    except OSError as exc:
        raise SbxError(f"cannot start the local cloud: {exc}", hint="set SBX_HOME to a folder you can write") from exc


def _decode(facts: dict[str, Any]) -> LocalCloud:
    return LocalCloud(
        endpoint_url=facts["endpoint_url"],
        region=facts["region"],
        account_id=facts["account_id"],
        pid=int(facts["pid"]),
        ca_file=Path(facts["ca_file"]),
        credentials=StaticCredentials(facts["access_key_id"], facts["secret_access_key"], ""),
        runtime=facts["runtime"],
        isolation=facts["isolation"],
        version=facts["version"],
        time_scale=float(facts["time_scale"]),
        runtime_version=str(facts.get("runtime_version", "")),
        runtime_age=str(facts.get("runtime_age", "")),
        shortfall=Shortfall(
            harmless_line("; ".join(map(str, facts.get("passed_over", ())))),
            bool(facts.get("passed_over_has_fault")),
        ),
        mode=str(facts.get("mode", "comfort")),
        account_size=str(facts.get("account_size", "none")),
    )


def _log_tail(home: Home) -> str:
    try:
        lines = local_cloud_log(home).read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        return "it left no log"
    return harmless_line(lines[-1]) if lines else "its log is empty"


def _log_hint(home: Home) -> str:
    return f"see {local_cloud_log(home)}, or run `sbx doctor`"
