"""Which events are about one machine: names change, and are given to another machine once they are free."""

from __future__ import annotations

from sbxtui.core.values import dataclass
from sbxtui.store.db import Store

# The machine of before lost the name: it was forgotten, or renamed.
_ENDS = """SELECT max(seq) FROM events WHERE context = ? AND seq < ? AND (
    (kind = 'sandbox.removed' AND subject = ?) OR (kind = 'sandbox.renamed' AND json_extract(data, '$.from') = ?))"""
_RENAMES = """SELECT seq, json_extract(data, '$.from') FROM events
    WHERE context = ? AND kind = 'sandbox.renamed' AND subject = ? AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT 1"""
_LAST_OF_ID = "SELECT seq, subject FROM events WHERE context = ? AND json_extract(data, '$.id') = ? ORDER BY seq DESC"


@dataclass(frozen=True, slots=True)
class Span:
    """Events under one name, from behind `after_seq` up to `until_seq`."""

    subject: str
    after_seq: int
    until_seq: int


def spans_of_name(store: Store, context: str, name: str, *, until_seq: int) -> tuple[Span, ...]:
    """Of the machine that has the name at `until_seq`, also under its names of before; the newest first."""
    found: list[Span] = []
    while True:
        ended = store.rows(_ENDS, (context, until_seq, name, name))[0][0] or 0
        renamed = store.rows(_RENAMES, (context, name, ended, until_seq))
        found.append(Span(name, renamed[0][0] - 1 if renamed else ended, until_seq))
        if not renamed:
            return tuple(found)
        # Strictly older with every step, so that this ends.
        until_seq, name = renamed[0][0], renamed[0][1]


def spans_of_id(store: Store, context: str, sandbox_id: str) -> tuple[Span, ...]:
    """Of a machine that no name means any more; nothing when no event tells of it."""
    last = store.rows(f"{_LAST_OF_ID} LIMIT 1", (context, sandbox_id))
    return spans_of_name(store, context, last[0][1], until_seq=last[0][0]) if last else ()
