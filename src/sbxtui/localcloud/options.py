"""The command line of the local cloud's process."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sbxtui.localcloud.account import NO_SIZE, SIZES
from sbxtui.localcloud.found import CloudFile

# Memory is a limit of each sandbox, not a reservation; most use a small part of it.
MEMORY_OVERCOMMIT = 4


@dataclass(frozen=True, slots=True)
class Options:
    """The command line."""

    home: Path
    trees: Path
    sockets: Path
    logs: Path
    port: int
    time_scale: float
    exit_when_idle_s: float
    memory_quota_mib: int
    runtime: str
    is_conformant: bool
    account_size: str
    lag_s: float
    has_ceilings: bool

    @property
    def local_dir(self) -> Path:
        """The local cloud's own folder."""
        return self.home / "local"

    @property
    def cloud_file(self) -> CloudFile:
        """Tells faces where this process serves."""
        return CloudFile(self.local_dir / "cloud.json", self.sockets / "cloud.json")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sbxtui.localcloud", description="The local cloud of one home.")
    parser.add_argument("--home", type=Path, required=True, help="the home's state folder")
    parser.add_argument("--trees", type=Path, required=True, help="where sandboxes keep their files")
    parser.add_argument("--sockets", type=Path, required=True, help="a short folder for unix sockets")
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="of the API; 0: as before, else any free one")
    parser.add_argument("--time-scale", type=float, default=1.0, help="divides every lifecycle window")
    parser.add_argument("--exit-when-idle", type=float, default=600.0, metavar="S", help="seconds; 0: never")
    parser.add_argument(
        "--memory-quota-mib", type=int, default=0, help="of all sandboxes; 0: four times this machine's"
    )
    parser.add_argument(
        "--conformance", action="store_true", help="the platform's limits: 8 hours a sandbox, and an account's quotas"
    )
    parser.add_argument(
        "--account-size", choices=(NO_SIZE, *SIZES), default="", help="quotas; default: standard in conformance mode"
    )
    parser.add_argument(
        "--ceilings", choices=("on", "off"), default="", help="of endpoints, by size; default: on in conformance mode"
    )
    parser.add_argument("--lag", type=float, default=0.0, metavar="S", help="Get and List show what was so long ago")
    parser.add_argument(
        "--runtime", default="", help="isolation runtime, or isolation>=ID; empty: the strongest that works"
    )
    return parser


def parse_options(argv: Sequence[str]) -> Options:
    """Read the command line; a wrong one ends the process with code 2."""
    parser = _parser()
    found = parser.parse_args(argv)
    if not found.time_scale > 0:
        parser.error("--time-scale must be greater than 0")
    return Options(
        home=found.home.absolute(),
        trees=found.trees.absolute(),
        sockets=found.sockets.absolute(),
        logs=found.logs.absolute(),
        port=found.port,
        time_scale=found.time_scale,
        exit_when_idle_s=found.exit_when_idle,
        memory_quota_mib=found.memory_quota_mib or _machine_memory_mib() * MEMORY_OVERCOMMIT,
        runtime=found.runtime,
        is_conformant=found.conformance,
        account_size=found.account_size or ("standard" if found.conformance else NO_SIZE),
        lag_s=found.lag,
        has_ceilings=found.ceilings == "on" or (found.conformance and not found.ceilings),
    )


def _machine_memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
