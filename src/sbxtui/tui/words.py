"""What the dashboard says, as plain text: states, ages, freshness, reasons. Pure; everything returned is harmless."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from textwrap import wrap

from sbxtui.core.errors import SbxError
from sbxtui.core.isolation import short_isolation
from sbxtui.core.model import Sandbox, SandboxState
from sbxtui.core.text import harmless, harmless_line, reason_words, short_age
from sbxtui.core.values import dataclass

# Glyph and word say the state; the third column names a colour that only repeats it.
STATE_WORDS: dict[SandboxState, tuple[str, str, str]] = {
    SandboxState.PENDING: ("~", "starting", "busy"),
    SandboxState.RUNNING: ("+", "running", "good"),
    SandboxState.SUSPENDING: ("~", "suspending", "busy"),
    SandboxState.SUSPENDED: ("z", "suspended", "calm"),
    SandboxState.TERMINATING: ("x", "ending", "gone"),
    SandboxState.TERMINATED: ("x", "ended", "gone"),
    SandboxState.UNKNOWN: ("?", "unknown", "warn"),
}
# What people look for first comes first: the end of the line may not fit.
_COUNT_ORDER = sorted(
    STATE_WORDS, key=(SandboxState.RUNNING, SandboxState.UNKNOWN, SandboxState.SUSPENDED, *STATE_WORDS).index
)
_GAP = re.compile(r" {2,}")
# Until it is older than two looks at a calm cloud, its age is no news.
_FRESH = timedelta(seconds=7)
_STALE = timedelta(seconds=12)


@dataclass(frozen=True, slots=True)
class LastSeen:
    """The last state the control plane told of a sandbox, and when."""

    state: SandboxState
    at: datetime


def state_text(state: SandboxState) -> str:
    """Glyph and word: `+ running`."""
    glyph, word, _ = STATE_WORDS[state]
    return f"{glyph} {word}"


def state_tone(state: SandboxState) -> str:
    """The name of the colour that repeats the state: good, busy, calm, gone or warn."""
    return STATE_WORDS[state][2]


def shown_name(sandbox: Sandbox) -> str:
    """Its name; an untracked machine shows its id in brackets, so that it is never taken for a name."""
    return harmless_line(sandbox.name, limit=63) if sandbox.is_tracked else f"({harmless_line(sandbox.id, limit=80)})"


def network_text(sandbox: Sandbox) -> str:
    """The effective network as recorded at launch; `?` where nobody recorded it."""
    return harmless_line(str(sandbox.facts.get("network") or "?"), limit=60)


def isolation_text(sandbox: Sandbox) -> str:
    """The isolation as the sandbox itself told it; empty where it has not."""
    return harmless_line(str(sandbox.facts.get("isolation") or ""))


def is_isolated(words: str) -> bool:
    """Whether the words of an isolation promise any."""
    return bool(words) and "NOT isolated" not in words


def isolation_word(sandbox: Sandbox) -> str:
    """The isolation in one word: `gVisor`, `namespaces`; `process!` where there is none, `?` where it is not told."""
    words = isolation_text(sandbox)
    return short_isolation(words) + "!" * (not is_isolated(words)) if words else "?"


def why_text(sandbox: Sandbox, last_seen: LastSeen | None, now: datetime, failed: str = "") -> str:
    """Why the row is as it is, in one line; empty when there is nothing to say. `failed`: what failed on it last."""
    if failed:
        return harmless_line(failed)
    if sandbox.state is SandboxState.UNKNOWN:
        if last_seen is None:
            return harmless_line(sandbox.state_reason) or "never seen by this dashboard"
        glyph_word = STATE_WORDS[last_seen.state][1]
        return f"was {glyph_word} {short_age(now - last_seen.at)} ago"
    if reason := reason_words(sandbox.state_reason):
        return harmless_line(reason)
    return "" if sandbox.is_tracked else "no name here"


def age_text(sandbox: Sandbox, now: datetime) -> str:
    """How long ago it was created."""
    return short_age(now - sandbox.created_at)


def freshness_text(seen_at: datetime | None, now: datetime, error: SbxError | None, *, is_cached: bool) -> str:
    """How old what is shown is, and why it is not newer."""
    if seen_at is None:
        return error_code_words(error) if error else "not asked yet"
    age = now - seen_at
    if error is not None:
        return f"{error_code_words(error)} · as of {short_age(age)} ago"
    if is_cached:
        return f"as of {short_age(age)} ago · asking"
    if age >= _STALE:
        return f"stale {short_age(age)}"
    return "live" if age < _FRESH else f"updated {short_age(age)} ago"


_CODE_WORDS = {
    "access_denied": "no access",
    "throttled": "throttled",
    "control_unavailable": "unreachable",
    "timed_out": "no answer",
}


def error_code_words(error: SbxError | None) -> str:
    """An error in two words for a border."""
    return _CODE_WORDS.get(error.code, error.code.replace("_", " ")) if error else ""


def error_text(error: SbxError) -> str:
    """An error as a page: what failed, what to do, and the facts scripts get."""
    parts = [harmless(error.message)]
    parts.append(f"What to do: {harmless(error.hint) or 'nothing known; try again, then `sbx doctor`'}")
    parts.append(f"Code `{error.code}`, exit {error.exit_code}; " + _retry_words(error))
    if error.details:
        parts.append("\n".join(f"{key}: {harmless_line(str(value))}" for key, value in error.details.items()))
    return "\n\n".join(parts)


def _retry_words(error: SbxError) -> str:
    return "retrying is safe." if error.retryable else "retrying alone will not help."


def counts_text(sandboxes: Iterable[Sandbox], room: int = 1_000) -> str:
    """How many are in which state: `2 running  1 suspended`; what does not fit `room` cells is counted as others."""
    counts = Counter(sandbox.state for sandbox in sandboxes)
    states = [state for state in _COUNT_ORDER if counts[state]]
    for shown in range(len(states), -1, -1):
        parts = [f"{counts[state]} {STATE_WORDS[state][1]}" for state in states[:shown]]
        if others := sum(counts[state] for state in states[shown:]):
            parts.append(f"{others} other{'s' * (others > 1)}" if shown else f"{others} in all")
        if len(text := "  ".join(parts)) <= room:
            return text
    return ""


def hung(text: str, width: int) -> str:
    """`text` with lines of at most `width` cells; what a long line goes on with stands below its last column.

    Columns are what two or more spaces part. A column that leaves less than half the width is none.
    """
    return "\n".join(_hung_line(line, width) for line in text.split("\n"))


def _hung_line(line: str, width: int) -> str:
    if len(line) <= width or width <= 0:
        return line
    starts = [gap.end() for gap in _GAP.finditer(line) if gap.end() <= width // 2]
    indent = " " * (starts[-1] if starts else 0)
    head, rest = line[: len(indent)], line[len(indent) :]
    return "\n".join(wrap(rest, width, initial_indent=head, subsequent_indent=indent, drop_whitespace=True)) or line


def names_text(names: Sequence[str], *, limit: int = 3) -> str:
    """Names in a sentence; past `limit`, how many more there are."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def size_text(memory_mib: object) -> str:
    """A size as people say it: `2 GiB`, `512 MiB`; empty when unknown."""
    if not isinstance(memory_mib, int) or memory_mib <= 0:
        return ""
    return f"{memory_mib // 1024} GiB" if memory_mib % 1024 == 0 else f"{memory_mib} MiB"
