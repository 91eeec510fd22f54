"""Which runtime a sandbox gets: the first of an order that works, or exactly the one asked for. Never silently less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable, UsageError
from sbxtui.localcloud.runtimes.base import Probe, Runtime
from sbxtui.localcloud.runtimes.bubblewrap import Bubblewrap
from sbxtui.localcloud.runtimes.process import PlainProcess

# Strongest first. What is not in this order is only ever chosen by name.
ORDER: tuple[Runtime, ...] = (Bubblewrap(),)
BY_NAME_ONLY: tuple[Runtime, ...] = (PlainProcess(),)


@dataclass(frozen=True, slots=True)
class Choice:
    """A runtime that works here, with what its probe saw."""

    runtime: Runtime
    probe: Probe


def runtime_ids() -> tuple[str, ...]:
    """Every runtime, in the order they are tried."""
    return tuple(runtime.id for runtime in (*ORDER, *BY_NAME_ONLY))


def find_runtime(runtime_id: str) -> Runtime:
    """The runtime of that id.

    Raises:
        UsageError: There is none.
    """
    for runtime in (*ORDER, *BY_NAME_ONLY):
        if runtime.id == runtime_id:
            return runtime
    raise UsageError(f"`{runtime_id}` is no runtime", hint=f"choose one of {', '.join(runtime_ids())}")


def choose_runtime(wanted: str, copies_dir: Path) -> Choice:
    """Probe and choose; blocking.

    Args:
        wanted: A runtime's id, or empty for the first that works and isolates.
        copies_dir: Where programs are copied to when the user sandboxes run as cannot reach them
            (`home.trees_dir/.images`).

    Raises:
        UsageError: `wanted` is no runtime.
        RuntimeUnavailable: It, or every isolating one, fails; the message says why for each.
    """
    candidates = (find_runtime(wanted),) if wanted else ORDER
    failures: list[str] = []
    for runtime in candidates:
        probe = runtime.probe(copies_dir)
        if probe.ok:
            return Choice(runtime, probe)
        failures.append(f"{runtime.id}: {probe.why_not}")
    raise RuntimeUnavailable(
        f"no isolation runtime works on this machine ({'; '.join(failures)})",
        hint="run `sbx doctor`; `--runtime process` runs without any isolation",
    )
