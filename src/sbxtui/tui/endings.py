"""How commands ended, in the few words a line has room for. Pure."""

from __future__ import annotations

import signal

from sbxtui.core.jobs import Job, JobState
from sbxtui.core.model import ExecResult

_SIGNALS = {one.value: one.name.removeprefix("SIG") for one in signal.Signals}


def signal_word(number: int) -> str:
    """`TERM` for 15; the number where it has no name."""
    return _SIGNALS.get(number, f"signal {number}")


def result_words(result: ExecResult, lines: int) -> str:
    """What became of a command that printed so many lines, in one line."""
    parts = [f"exit {result.exit_code}"]
    if result.timed_out:
        parts.append("timed out")
    elif result.oom:
        parts.append("out of memory")
    elif result.signal:
        parts.append(f"ended by {signal_word(result.signal)}")
    parts.append(f"{result.duration_s:.1f}s")
    parts.append(f"{lines:,} line{'s' * (lines != 1)}")
    if result.lingering:
        parts.append("children still run")
    if result.truncated:
        parts.append("the guest could not keep all output")
    return " · ".join(parts)


def state_words(job: Job) -> tuple[str, str]:
    """A job's state with its sign, and the tone that repeats it."""
    ending = job.exit
    match job.state:
        case JobState.RUNNING:
            return "+ running", "good"
        case JobState.STARTING:
            return "~ starting", "busy"
        case JobState.UNKNOWN:
            return "? unknown", "warn"
        case _ if ending is None:
            return ". ended", "calm"
    assert ending is not None
    if ending.timed_out:
        return "! timed out", "warn"
    if ending.oom:
        return "! no memory", "warn"
    if ending.code is None:
        return f"x {signal_word(ending.signal)}", "warn"
    return (". exit 0", "calm") if ending.code == 0 else (f"! exit {ending.code}", "warn")
