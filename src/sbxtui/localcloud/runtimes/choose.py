"""Which runtime a sandbox gets: the first of an order that works, or exactly the one asked for. Never silently less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable, UsageError
from sbxtui.core.isolation import check_wish
from sbxtui.localcloud.runtimes.base import Probe, Runtime
from sbxtui.localcloud.runtimes.bubblewrap import Bubblewrap
from sbxtui.localcloud.runtimes.gvisor import GVisor
from sbxtui.localcloud.runtimes.microvm import MicroVm
from sbxtui.localcloud.runtimes.process import PlainProcess

# Strongest first. What is not in this order is only ever chosen by name.
ORDER: tuple[Runtime, ...] = (GVisor(), Bubblewrap())
STRONGEST = MicroVm()
BY_NAME_ONLY: tuple[Runtime, ...] = (STRONGEST, PlainProcess())


@dataclass(frozen=True, slots=True)
class Choice:
    """A runtime that works here, with what its probe saw, and why each stronger one was passed over.

    `has_fault`: one of those is there, and unsound.
    """

    runtime: Runtime
    probe: Probe
    passed_over: tuple[str, ...] = ()
    has_fault: bool = False


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


def candidates_for(wanted: str) -> tuple[Runtime, ...]:
    """What a wish allows, strongest first: a runtime's id is that one, `isolation>=ID` that one or stronger, and
    nothing at all whatever isolates. Virtual machines are had by their name only, or by a wish for no less.

    Raises:
        UsageError: It names no runtime, or asks for at least something that isolates nothing.
    """
    if not wanted:
        return ORDER
    if check_wish(wanted)[0] == STRONGEST.id:
        return (STRONGEST,)
    least = wanted.removeprefix("isolation").strip()
    if not least.startswith(">="):
        return (find_runtime(wanted),)
    runtime = find_runtime(least[2:].strip())
    if runtime not in ORDER:
        raise UsageError(f"`{wanted}` is no requirement: {runtime.isolation}", hint="name a runtime that isolates")
    return ORDER[: ORDER.index(runtime) + 1]


def choose_runtime(wanted: str, copies_dir: Path) -> Choice:
    """Probe and choose; blocking.

    Args:
        wanted: As in `candidates_for`.
        copies_dir: Where programs are copied to when the user sandboxes run as cannot reach them
            (`home.trees_dir/.images`).

    Raises:
        UsageError: `wanted` is no runtime.
        RuntimeUnavailable: It, or every isolating one, fails; the message says why for each.
    """
    failures: list[str] = []
    has_fault = False
    for runtime in candidates_for(wanted):
        probe = runtime.probe(copies_dir)
        if probe.ok:
            return Choice(runtime, probe, tuple(failures), has_fault)
        has_fault = has_fault or probe.is_there
        failures.append(f"{runtime.id}: {probe.why_not}")
    if wanted:
        raise RuntimeUnavailable(
            f"isolation `{wanted}` is not to be had on this machine ({'; '.join(failures)})",
            hint="`sbx local setup` fetches gVisor; `sbx doctor` says what works",
        )
    raise RuntimeUnavailable(
        f"no isolation runtime works on this machine ({'; '.join(failures)}); "
        'to run without any, write `isolation = "process"` into config.toml, or set SBX_ISOLATION=process',
        hint="run `sbx doctor`",
    )
