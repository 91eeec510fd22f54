"""The ports of a sandbox as lines for the screen. Pure; everything returned is harmless."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len

from sbxtui.core.text import counted, harmless_line, short_age, short_size
from sbxtui.tui.widgets.columns import fitted
from sbxtui.tui.widgets.rows import Row

if TYPE_CHECKING:
    from sbxtui.services.forward.desk import ForwardView
    from sbxtui.services.ports import OpenPort

_TONES = {"up": "good", "idle": "calm", "suspended": "calm", "connecting": "busy"}
_PORT_WIDTH = 7
_PROCESS_WIDTH = 14
_AGE_WIDTH = 6


@dataclass(frozen=True, slots=True)
class PortLine:
    """A port of the sandbox, with what listens there (None: nothing, as far as is known) and one forward of it."""

    port: int
    listener: OpenPort | None
    forward: ForwardView | None

    @property
    def key(self) -> str:
        """Names the line."""
        return f"{self.port}:{self.forward.local_port if self.forward is not None else ''}"


def lines_of(found: Sequence[OpenPort] | None, forwards: Sequence[ForwardView]) -> list[PortLine]:
    """Every port that is listened on or forwarded, by number; one that is forwarded twice has two lines."""
    listeners = {one.port: one for one in found or ()}
    lines = [PortLine(one.remote_port, listeners.get(one.remote_port), one) for one in forwards]
    forwarded = {one.remote_port for one in forwards}
    lines += [PortLine(port, one, None) for port, one in listeners.items() if port not in forwarded]
    return sorted(lines, key=lambda line: (line.port, line.forward.local_port if line.forward else 0))


def port_row(line: PortLine, now: datetime, width: int, *, is_looked: bool) -> Row:
    """One port: what listens there, since when, and where it is here.

    Args:
        line: The port.
        now: To tell ages.
        width: Cells there are.
        is_looked: Whether it is known what listens.
    """
    listener = line.listener
    if listener is not None:
        who = harmless_line(listener.process, limit=80) or "?"
        age = short_age(now - listener.since) if listener.since is not None else "?"
    else:
        who, age = ("nothing" if is_looked else "?"), ""
    cells = [
        (f"{line.port:<{_PORT_WIDTH}}", "key"),
        (fitted(who, _PROCESS_WIDTH - 1) + " ", "warn" if is_looked and listener is None else ""),
        (f"{age:<{_AGE_WIDTH}} ", "muted"),
    ]
    room = max(0, width - sum(cell_len(text) for text, _ in cells))
    return Row(line.key, (*cells, *(_forward_cells(line.forward, room) if line.forward is not None else ())))


def _forward_cells(forward: ForwardView, room: int) -> list[tuple[str, str]]:
    """Where it is here, how the way is, what it carried, what went wrong: as much as has room."""
    trouble = harmless_line(forward.reason or forward.last_error)
    parts = [
        (f"→ {forward.url}  ", "key"),
        (f"{forward.state}  ", _TONES.get(forward.state, "warn")),
        (f"{traffic_of(forward)}  ", "muted"),
        (trouble, "warn"),
    ]
    if cell_len(parts[0][0]) + cell_len(parts[1][0]) > room:
        parts[0] = (f"→ :{forward.local_port}  ", "key")
    cells: list[tuple[str, str]] = []
    for text, tone in parts:
        size = cell_len(text.rstrip())
        if size <= room or tone == "warn":
            shown = text if cell_len(text) <= room else fitted(text.rstrip(), min(size, room))
            cells.append((shown, tone))
            room -= cell_len(shown)
    return cells


def traffic_of(forward: ForwardView) -> str:
    """How many connections it has, and what it carried."""
    traffic = f"{short_size(forward.sent_bytes)} out {short_size(forward.received_bytes)} in"
    return f"{counted(forward.open, 'connection')}, {traffic}"


def state_line(forwards: Sequence[ForwardView], looked_at: datetime | None, now: datetime) -> tuple[str, str]:
    """How many are forwarded and how that goes, and when somebody looked inside; with its tone."""
    bad = [one for one in forwards if one.state not in _TONES]
    words = f"{len(forwards)} forwarded" if forwards else "nothing is forwarded"
    words += f", {len(bad)} in trouble" if bad else ""
    seen = f"looked inside {short_age(now - looked_at)} ago" if looked_at is not None else "not looked inside yet"
    return f"{words} · {seen}", "warn" if bad else ""


def details_of(line: PortLine) -> str:
    """All that is known of a port, as a page."""
    listener, forward = line.listener, line.forward
    told = asdict(listener) | {"since": str(listener.since or "")} if listener is not None else None
    document = {"port": line.port, "listens": told, "forward": asdict(forward) if forward is not None else None}
    return json.dumps(document, indent=2, ensure_ascii=False)
