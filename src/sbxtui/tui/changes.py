"""Events of the store as a person reads them: the command line that does the same, who did it, how it ended. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sbxtui.core.model import Event
from sbxtui.core.text import harmless_line

_LINE_CHARS = 400
# Told by the events around them.
_SILENT = frozenset({"sandbox.facts", "infra.outputs", "sync.stopped", "forward.stopped"})
_FAILED = ".failed"
_BEGINNINGS = frozenset({"sandbox.reserved", "job.start"})
# The control plane took a launch.
_TAKEN = "sandbox.tracked"
_ENDS = frozenset({_TAKEN, "sandbox.removed", "job.exit", "job.remove"})


@dataclass(frozen=True, slots=True)
class Change:
    """One change: `line` is the command that does it, `result` one or two words, `words` more to say. All harmless.

    `took_s` is None where nobody measured it; `is_open` while it is not over.
    """

    seq: int
    at: datetime
    actor: str
    subject: str
    line: str
    result: str = "ok"
    words: str = ""
    took_s: float | None = None
    is_open: bool = False

    @property
    def is_failure(self) -> bool:
        """Whether it did not work."""
        return self.result == "failed"

    @property
    def is_odd(self) -> bool:
        """Whether it worked, and the command it ran ended with another code than 0 or by a signal."""
        return self.result.startswith(("exit ", "signal"))


def changes_of(events: Iterable[Event]) -> list[Change]:
    """The changes behind events, oldest first; what begins with one event and ends with another is one."""
    found: dict[int, Change] = {}
    begun: dict[tuple[str, str], int] = {}
    taken: dict[tuple[str, str], int] = {}
    for event in events:
        if event.kind in _SILENT:
            if _is_ready(event) and (launch := taken.pop((event.context, event.subject), None)) is not None:
                found[launch] = replace(found[launch], took_s=(event.at - found[launch].at).total_seconds())
            continue
        place = (event.context, str(event.data.get("job", event.subject)))
        if event.kind in _BEGINNINGS:
            begun[place] = event.seq
            found[event.seq] = replace(_change(event), result="…", is_open=True)
        elif event.kind in _ENDS and place in begun:
            first = found[begun.pop(place)]
            found[first.seq] = _ended(first, event)
            if event.kind == _TAKEN:
                taken[place] = first.seq
        else:
            found[event.seq] = _change(event)
    return list(found.values())


def _is_ready(facts: Event) -> bool:
    """Whether a sandbox was just given what it was launched with, so that its launch is over."""
    changed = facts.data.get("changed")
    return isinstance(changed, list) and "launch" in changed


def _ended(begun: Change, event: Event) -> Change:
    """A change with how it ended."""
    over = replace(begun, result="ok", took_s=(event.at - begun.at).total_seconds(), is_open=False)
    match event.kind:
        case kind if kind == _TAKEN:
            # Until its guest answers: that is what takes the time.
            return replace(over, took_s=None)
        case "sandbox.removed":
            return replace(over, result="failed", words=harmless_line(str(event.data.get("reason", ""))))
        case "job.remove":
            return replace(over, result="ended", words="with who ran it")
        case "job.exit" if event.data.get("exit_code") != 0:
            code = event.data.get("exit_code")
            return replace(over, result=f"exit {code}" if isinstance(code, int) else "signal")
        case _:
            return over


def _change(event: Event) -> Change:
    took_s = event.data.get("took_s")
    is_failure = event.kind.endswith(_FAILED)
    reason = str(event.data.get("error" if is_failure else "reason", ""))
    return Change(
        seq=event.seq,
        at=event.at,
        actor=harmless_line(event.actor, limit=40),
        subject=harmless_line(event.subject, limit=80),
        line=harmless_line(line_of(event), limit=_LINE_CHARS),
        result="failed" if is_failure else "ok",
        words="" if reason == "removed" else harmless_line(reason),
        took_s=float(took_s) if isinstance(took_s, int | float) else None,
    )


def line_of(event: Event) -> str:
    """The command line that does what an event tells, as a shell takes it."""
    if isinstance(line := event.data.get("cli"), str) and line:
        return line
    kind = event.kind.removesuffix(_FAILED)
    words = _WORDS.get(kind)
    if words is None:
        return f"{kind} {event.subject}".strip()
    told = {key: _told(value) for key, value in {"from": "SRC", **event.data, "subject": event.subject}.items()}
    filled = (word.format_map(_Blank(told)) for word in words)
    return shlex.join(["sbx", *(word for word in filled if word)]).replace("'…'", "…")


_WORDS: Mapping[str, tuple[str, ...]] = {
    "sandbox.reserved": ("create", "{subject}"),
    "sandbox.tracked": ("create", "{subject}"),
    "sandbox.remove": ("rm", "{subject}"),
    "sandbox.removed": ("rm", "{subject}"),
    "sandbox.adopted": ("adopt", "{id}", "{subject}"),
    "sandbox.renamed": ("rename", "{from}", "{subject}"),
    "sandbox.labels": ("label", "{subject}", "{changed}"),
    "sandbox.suspend": ("stop", "{subject}"),
    "sandbox.resume": ("start", "{subject}"),
    "job.start": ("exec", "{subject}", "--", "{program}", "…"),
    "job.exit": ("output", "{subject}", "{job}"),
    "job.remove": ("kill", "{subject}", "{job}"),
    "job.told": ("jobs", "{subject}"),
    "job.signal": ("kill", "{subject}", "{job}", "--signal", "{signal}"),
    "job.input": ("attach", "{subject}", "{job}"),
    "files.upload": ("cp", "FILE", "{subject}:{path}"),
    "files.write": ("fs", "write", "{subject}", "{path}"),
    "files.mkdir": ("fs", "mkdir", "{subject}", "{path}"),
    "files.rm": ("fs", "rm", "{subject}", "{path}"),
    "files.mv": ("fs", "mv", "{subject}", "{from}", "{path}"),
    "files.cp": ("fs", "cp", "{subject}", "{from}", "{path}"),
    "sandbox.network": ("network", "{subject}", "--{network}"),
    "sandbox.fork": ("fork", "{subject}", "{to}"),
    "sandbox.snapshot": ("snapshot", "create", "{subject}", "{snapshot}"),
    "snapshot.removed": ("snapshot", "rm", "{subject}"),
    "sandbox.secret": ("secret", "{action}", "{subject}", "{secret}"),
    "sync.start": ("sync", "{subject}", "{root}"),
    "sync.paused": ("sync", "pause", "{subject}"),
    "sync.running": ("sync", "resume", "{subject}"),
    "sync.stop": ("sync", "stop", "{subject}"),
    "forward.start": ("forward", "{subject}", "{local_port}:{remote_port}"),
    "forward.stop": ("forward", "stop", "{subject}", "{local_port}"),
    "port.listening": ("ports", "{subject}"),
    "client.paused": ("mcp", "pause", "{subject}"),
    "client.running": ("mcp", "resume", "{subject}"),
    "client.asking": ("mcp", "ask", "{subject}"),
    "client.ended": ("mcp", "end", "{subject}"),
    "client.approved": ("mcp", "approve", "{approval}"),
    "client.denied": ("mcp", "deny", "{approval}"),
    "context.added": ("context", "add", "{subject}"),
    "context.used": ("context", "use", "{subject}"),
    "context.removed": ("context", "rm", "{subject}"),
}


class _Blank(dict[str, str]):
    """What an event does not tell is left out."""

    def __missing__(self, key: str) -> str:
        return ""


def _told(value: object) -> str:
    # Values of labels are not in events: only which ones changed.
    return " ".join(f"{one}=…" for one in value) if isinstance(value, list) else str(value)
