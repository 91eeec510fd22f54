"""Which runtime a sandbox gets: the first of an order that works, or exactly the one asked for. Never silently less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sbxtui.core.errors import RuntimeUnavailable, UsageError
from sbxtui.core.isolation import check_wish
from sbxtui.localcloud.runtimes import microvm
from sbxtui.localcloud.runtimes.base import Probe, Runtime
from sbxtui.localcloud.runtimes.bubblewrap import Bubblewrap
from sbxtui.localcloud.runtimes.gvisor import GVisor
from sbxtui.localcloud.runtimes.process import PlainProcess

# Strongest first. What is not in this order is only ever chosen by name.
ORDER: tuple[Runtime, ...] = (GVisor(), Bubblewrap())
BY_NAME_ONLY: tuple[Runtime, ...] = (PlainProcess(),)


@dataclass(frozen=True, slots=True)
class Choice:
    """A runtime that works here, with what its probe saw, and why each stronger one was passed over."""

    runtime: Runtime
    probe: Probe
    passed_over: tuple[str, ...] = ()


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
    nothing at all whatever isolates. None fits `microvm`, which has gates and no runtime.

    Raises:
        UsageError: It names no runtime, or asks for at least something that isolates nothing.
    """
    if not wanted:
        return ORDER
    if check_wish(wanted)[0] == microvm.ID:
        return ()
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
    if wanted and not candidates_for(wanted):
        failures.append(f"{microvm.ID}: {microvm.why_not(microvm.Machine.here())}")
    for runtime in candidates_for(wanted):
        probe = runtime.probe(copies_dir)
        if probe.ok:
            return Choice(runtime, probe, tuple(failures))
        failures.append(f"{runtime.id}: {probe.why_not}")
    if wanted:
        raise RuntimeUnavailable(
            f"isolation `{wanted}` is not to be had on this machine ({'; '.join(failures)})",
            hint="`sbx local setup` fetches gVisor; `sbx doctor` says what works",
        )
    raise RuntimeUnavailable(
        f"no isolation runtime works on this machine ({'; '.join(failures)})",
        hint="run `sbx doctor`; `--runtime process` runs without any isolation",
    )
