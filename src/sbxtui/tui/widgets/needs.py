"""What needs a person, below the list where there is room: which sandbox, why in full, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from sbxtui.core.model import Sandbox
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass
from sbxtui.tui import clock
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.words import STATE_WORDS, shown_name, why_text

_MOST = 4
_NAME_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Need:
    """One thing to look at, in harmless words; no `sandbox` means all of them."""

    sandbox: str
    why: str
    remedy: str


def needs_of(fleet: Fleet, now: datetime, key_to: Callable[[str], str]) -> Iterator[Need]:
    """What needs a person among the rows shown, in their order.

    Args:
        fleet: The rows.
        now: The present.
        key_to: The key of an action, by its id.
    """
    if fleet.error is not None:
        remedy = harmless_line(fleet.error.hint) or f"{key_to('explain')} explains"
        yield Need("", harmless_line(fleet.error.message), remedy)
        return
    for one in fleet.wrong:
        yield Need(shown_name(one), *_why_and_remedy(one, fleet, now, key_to))


def _why_and_remedy(one: Sandbox, fleet: Fleet, now: datetime, key_to: Callable[[str], str]) -> tuple[str, str]:
    failure = fleet.failure_of(one)
    if failure is not None:
        why = harmless_line(f"{failure.doing} failed: {failure.error.message}")
        return why, harmless_line(failure.error.hint) or f"{key_to('explain')} explains"
    reason = why_text(one, fleet.last_seen_of(one), now)
    if one.state.is_gone:
        return f"{STATE_WORDS[one.state][1]}: {reason}".rstrip(": "), f"{key_to('remove')} takes it off the list"
    return reason, f"{key_to('record')} shows its record"


class NeedsView(Static):
    """Says the first few needs, and how many more there are; nothing, and no room taken, where all is well."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: tuple[list[Need], int] = ([], 0)
        self.border_title = "why it needs you"

    def show(self, fleet: Fleet, key_to: Callable[[str], str]) -> None:
        """Say what the fleet needs now."""
        needs = list(islice(needs_of(fleet, clock.now(), key_to), _MOST))
        more = len(fleet.wrong) - _MOST if fleet.error is None else 0
        if (needs, more) == self._shown:
            return
        self._shown = (needs, more)
        self.set_class(bool(needs), "-some")
        width = min(_NAME_WIDTH, max((cell_len(need.sandbox) for need in needs), default=0))
        lines = [line for need in needs for line in _lines(need, width)]
        if more > 0:
            lines.append(Content.styled(f"  and {more} more", "$sbx-muted"))
        self.update(Content("\n").join(lines))


def _lines(need: Need, width: int) -> list[Content]:
    name = need.sandbox + " " * (width - cell_len(need.sandbox)) + "  " * bool(width)
    indent = " " * (2 + cell_len(name))
    return [
        Content.assemble(("! ", "bold $sbx-warn"), (name, "bold"), (need.why, "")),
        Content.assemble((indent + need.remedy, "$sbx-muted")),
    ]
