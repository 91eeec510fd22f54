"""A sync as lines for the screen: how it is, and what there is to decide on. Pure; everything returned is harmless."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rich.cells import cell_len

from sbxtui.core.text import counted, harmless_line, short_age, short_size
from sbxtui.tui.widgets.columns import fitted
from sbxtui.tui.widgets.rows import Row

if TYPE_CHECKING:
    from sbxtui.services.sync.desk import Item
    from sbxtui.services.sync.views import SyncView

_CALM = {"watching": "good", "halted": "warn", "offline": "warn", "not running": "warn", "paused": "calm"}
_CARRYING = frozenset({"seeding", "pushing"})
_WORD_TONES = {"conflict": "warn", "deleted": "busy", "new": "good"}
_BAR_CELLS = 20
_WORD_WIDTH = 10
_MIN_PATH = 16


def state_lines(view: SyncView, name: str, now: datetime, *, done: int, width: int) -> list[tuple[str, str]]:
    """How a sync is, each line with its tone.

    Args:
        view: What is known of it.
        name: Of the sandbox.
        now: The present.
        done: How many of the changes that are being carried over are over, for the bar.
        width: The room of a line, in cells.
    """
    keeper = "goes on when sbx ends" if view.is_detached else "ends with the `sbx sync` that began it"
    ends = f"{harmless_line(view.root)} → {name}" + (f":{harmless_line(view.to)}" if view.to else ", its work folder")
    more = f" · {view.mode} · {keeper}"
    lines = [
        (ends + more if cell_len(ends + more) <= width else ends, ""),
        (_doing(view, done, width), _CALM.get(view.state, "busy")),
        (_figures(view, now, width), "muted"),
        (_open_counts(view), "warn"),
        (harmless_line(view.reason), "warn"),
    ]
    return [(words, tone) for words, tone in lines if words]


def _doing(view: SyncView, done: int, width: int) -> str:
    pending, wanted = view.count("pending"), " · a pause is asked for" * (view.is_paused and view.state != "paused")
    if not pending or view.state not in _CARRYING:
        return f"{view.state} · {counted(view.count('entries'), 'entry', 'entries')}{wanted}"
    total = done + pending
    filled = _BAR_CELLS * done // total
    words = f"{view.state} {'█' * filled}{'░' * (_BAR_CELLS - filled)} {100 * done // total} %"
    more = f" · {done:,} of {total:,} changes · {short_size(view.count('sent_bytes'))} sent{wanted}"
    return words + more if cell_len(words + more) <= width else words


def _figures(view: SyncView, now: datetime, width: int) -> str:
    """As many of the figures as stand in a line."""
    parts = []
    if (age_s := view.scan_age_s(now)) is not None:
        parts.append(f"last full scan {short_age(timedelta(seconds=age_s))} ago")
    if (middle_s := view.seconds("lag_p50_s")) is not None:
        most_s = view.seconds("lag_p95_s") or middle_s
        parts.append(f"lag {middle_s * 1000:.0f} ms, p95 {most_s * 1000:.0f} ms")
    for key, words in (("pushed", "carried over"), ("pulled", "taken in")):
        parts += [f"{view.count(key):,} {words}"] * bool(view.count(key))
    while parts and cell_len(" · ".join(parts)) > width:
        parts.pop()
    return " · ".join(parts)


def _open_counts(view: SyncView) -> str:
    counts = (
        ("conflict_count", "in conflict"),
        ("guest_changes", "changed in the sandbox only"),
        ("problem_count", "left alone"),
    )
    return " · ".join(f"{view.count(key):,} {words}" for key, words in counts if view.count(key))


def item_row(item: Item, width: int) -> Row:
    """What there is to decide on, in a line: what happened, the path, and more of it where there is room."""
    mark = "  may be run here!" if item.may_run else ""
    path = harmless_line(item.path.decode("utf-8", "replace"), limit=4096)
    room = max(_MIN_PATH, width - _WORD_WIDTH - cell_len(mark))
    words = f"  {item.words}" if item.words else ""
    words = words if cell_len(path + words) <= room else ""
    return Row(
        _key("item", item.path),
        (
            (f"{item.word:<{_WORD_WIDTH}}", _WORD_TONES.get(item.word, "key")),
            (fitted(path, min(cell_len(path), room - cell_len(words))), ""),
            (mark, "warn"),
            (words, "muted"),
        ),
    )


def left_rows(left: Iterable[tuple[str, str]], width: int) -> list[Row]:
    """Paths that are left alone, with the word for why."""
    rows = []
    for path, code in left:
        why = "  " + harmless_line(code.replace("_", " "))
        shown = harmless_line(path, limit=4096)
        room = max(_MIN_PATH, width - _WORD_WIDTH - cell_len(why))
        cells = ((f"{'left':<{_WORD_WIDTH}}", "muted"), (fitted(shown, min(cell_len(shown), room)), "muted"))
        rows.append(Row(_key("left", path.encode("utf-8", "surrogatepass")), (*cells, (why, "warn"))))
    return rows


def details_of(view: SyncView) -> str:
    """All that is known of a sync, as a page."""
    own = {"root": view.root, "to": view.to or "its work folder", "mode": view.mode, "detached": view.is_detached}
    return json.dumps({**own, **view.said, "state": view.state}, indent=2, ensure_ascii=False)


def _key(kind: str, path: bytes) -> str:
    return f"{kind}:{path.hex()}"
