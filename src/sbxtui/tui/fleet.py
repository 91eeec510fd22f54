"""The rows of the dashboard as a model: cursor, marks, filter, sort, and what was seen when. No widgets, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sbxtui.core.errors import SbxError, UsageError
from sbxtui.core.filters import parse_filter, sort_sandboxes
from sbxtui.core.life import spent_usd
from sbxtui.core.model import Context, Sandbox, SandboxState
from sbxtui.core.values import dataclass
from sbxtui.tui import clock
from sbxtui.tui.words import LastSeen, state_tone

if TYPE_CHECKING:
    from sbxtui.services.inventory import Inventory

SORT_KEYS = ("state,name", "name", "age", "-age", "image,name")
# One lost answer is no news about a sandbox: until then its last state is shown, dimmed and with its age.
_GRACE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed last on one sandbox."""

    doing: str
    error: SbxError


def key_of(sandbox: Sandbox) -> str:
    """What marks and the cursor hold on to: the id, or the name while a launch has no id yet."""
    return sandbox.id or early_key_of(sandbox)


def early_key_of(sandbox: Sandbox) -> str:
    """What `key_of` was before the sandbox had its id."""
    return f"name:{sandbox.name}"


class Fleet:
    """What is known of the sandboxes of one context, and which of them are shown.

    Marks and the cursor stay on their sandbox through refreshes, filters and sorts; they are dropped only when an
    answer of the control plane no longer has it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Know nothing, as for a context that was not opened yet."""
        self.context: Context | None = None
        self.all: tuple[Sandbox, ...] = ()
        self._taken: Inventory | None = None
        self.rows: list[Sandbox] = []
        self.seen_at: datetime | None = None
        self.error: SbxError | None = None
        self.is_cached = True
        self.marks: set[str] = set()
        self.sort = SORT_KEYS[0]
        self.filter = parse_filter("")
        self.filter_error: UsageError | None = None
        # As they were when the control plane last told of them.
        self._told: dict[str, Sandbox] = {}
        self.failures: dict[str, Failure] = {}
        # Sparklines of processors, by the id of their sandbox.
        self.cpu: Mapping[str, str] = {}
        # Until when they are kept awake, in words, by the same.
        self.awake: Mapping[str, str] = {}
        self._wrong: list[Sandbox] | None = None
        self._cursor_key = ""
        self._cursor_at = 0

    def take(self, inventory: Inventory, *, is_cached: bool, now: datetime | None = None) -> bool:
        """Show what was seen. An inventory with an error keeps the age of the last good one.

        Returns:
            Whether anything but how old it is may look different now.
        """
        if self._is_known(inventory, is_cached=is_cached):
            self.seen_at = inventory.seen_at
            self._remember(inventory)
            return False
        self._taken = inventory
        now = now or clock.now()
        self.context = inventory.context
        self.error = inventory.error
        if inventory.error is None:
            self.seen_at = inventory.seen_at
            self.is_cached = is_cached
        self._remember(inventory)
        self.all = inventory.sandboxes
        if inventory.error is not None:
            self.all = tuple(self._softened(sandbox, now) for sandbox in inventory.sandboxes)
        if (self.marks or self.failures) and inventory.error is None and not is_cached:
            known = {key_of(sandbox) for sandbox in self.all}
            self.marks &= known
            self.failures = {key: failure for key, failure in self.failures.items() if key in known}
        self.arrange(now)
        return True

    def _is_known(self, inventory: Inventory, *, is_cached: bool) -> bool:
        """Whether the last inventory told the same; one that filters by age or cost lets rows go as time goes by."""
        if self._taken is None or inventory.error is not None or is_cached or self.is_cached:
            return False
        return not self.filter.text.strip() and inventory.tells_same_as(self._taken)

    def arrange(self, now: datetime | None = None) -> None:
        """Filter and sort again; the cursor stays on its sandbox, or where it was when that is not shown."""
        now = now or clock.now()
        self._wrong = None
        shown: Sequence[Sandbox] = self.all
        if self.filter.text.strip():
            shown = [one for one in shown if self.filter.matches(one, now, lambda one: self._spent_usd(one, now))]
        self.rows = sort_sandboxes(shown, self.sort)
        at = next((at for at, one in enumerate(self.rows) if key_of(one) == self._cursor_key), None)
        if at is not None:
            self._cursor_at = at
            return
        if not self.rows:
            # Nothing else can be selected: the one that was is so again when it is shown again.
            self._cursor_at = 0
            return
        self.move_to(self._cursor_at)

    def _spent_usd(self, sandbox: Sandbox, now: datetime) -> float | None:
        return None if self.context is None else spent_usd(self.context, sandbox, now)

    def set_filter(self, text: str) -> None:
        """Filter by `text`; a text that cannot be read keeps the last filter and sets `filter_error`."""
        try:
            self.filter = parse_filter(text)
        except UsageError as exc:
            self.filter_error = exc
            return
        self.filter_error = None
        self.arrange()

    def sort_next(self) -> None:
        """Sort by the next of the known orders."""
        at = SORT_KEYS.index(self.sort) if self.sort in SORT_KEYS else -1
        self.sort_by(SORT_KEYS[(at + 1) % len(SORT_KEYS)])

    def sort_by(self, keys: str) -> None:
        """Sort by `keys`, as `sbx ls --sort` takes them."""
        self.sort = keys
        self.arrange()

    @property
    def cursor(self) -> int:
        """The row the cursor is on; 0 when there are none."""
        return self._cursor_at

    @property
    def selected(self) -> Sandbox | None:
        """The sandbox under the cursor."""
        return self.rows[self._cursor_at] if self.rows else None

    def move_to(self, row: int) -> None:
        """Put the cursor on a row, or the nearest there is."""
        self._cursor_at = max(0, min(row, len(self.rows) - 1))
        self._cursor_key = key_of(self.rows[self._cursor_at]) if self.rows else ""

    def move_to_key(self, key: str) -> None:
        """Put the cursor on a sandbox, as soon as it is shown."""
        self._cursor_key = key
        self.arrange()

    def toggle_mark(self) -> None:
        """Mark or unmark the sandbox under the cursor."""
        if self.selected is not None:
            self.marks ^= {key_of(self.selected)}

    def mark_shown(self) -> None:
        """Mark everything the filter shows; when all of it is marked already, unmark it."""
        shown = {key_of(one) for one in self.rows}
        self.marks = self.marks - shown if shown <= self.marks else self.marks | shown

    def targets(self) -> list[Sandbox]:
        """What an action acts on: the marked ones, shown or not, else the one under the cursor."""
        marked = [one for one in self.all if key_of(one) in self.marks]
        if marked:
            return marked
        return [self.selected] if self.selected is not None else []

    def find(self, key: str) -> Sandbox | None:
        """The sandbox of a key, if it is still known."""
        return next((one for one in self.all if key_of(one) == key), None)

    def last_seen_of(self, sandbox: Sandbox) -> LastSeen | None:
        """The last state the control plane told of it."""
        told = self._told.get(key_of(sandbox))
        return None if told is None or told.seen_at is None else LastSeen(told.state, told.seen_at)

    def note_failure(self, key: str, doing: str, error: SbxError) -> None:
        """Remember what failed on a sandbox, until something works on it."""
        self.failures[key] = Failure(doing, error)
        self._wrong = None

    def forget_failure(self, key: str) -> None:
        """Something worked on a sandbox."""
        self.failures.pop(key, None)
        self._wrong = None

    def failure_of(self, sandbox: Sandbox) -> Failure | None:
        """What failed last on it, if nothing worked since."""
        return self.failures.get(key_of(sandbox))

    @property
    def wrong(self) -> list[Sandbox]:
        """Rows at which a person should look: ended or unknown, or something failed on them or was killed in them."""
        if self._wrong is None:
            self._wrong = [one for one in self.rows if self._is_wrong(one)]
        return self._wrong

    def _is_wrong(self, sandbox: Sandbox) -> bool:
        if sandbox.state is SandboxState.RUNNING and sandbox.state_reason:
            return True
        return state_tone(sandbox.state) in ("warn", "gone") or key_of(sandbox) in self.failures

    def is_dim(self, sandbox: Sandbox) -> bool:
        """Whether its state is from memory rather than from the last answer."""
        return self.is_cached or self.error is not None or sandbox.state is SandboxState.UNKNOWN

    def _remember(self, inventory: Inventory) -> None:
        self._told.update(
            (key_of(one), one)
            for one in inventory.sandboxes
            if one.state is not SandboxState.UNKNOWN and one.seen_at is not None
        )

    def _softened(self, sandbox: Sandbox, now: datetime) -> Sandbox:
        if sandbox.state is not SandboxState.UNKNOWN:
            return sandbox
        seen = self.last_seen_of(sandbox)
        if seen is None or now - seen.at > _GRACE:
            return sandbox
        return replace(sandbox, state=seen.state, seen_at=seen.at)


def names_of(sandboxes: Iterable[Sandbox]) -> list[str]:
    """Names of tracked sandboxes."""
    return [one.name for one in sandboxes if one.is_tracked]


def untracked_ids(sandboxes: Sequence[Sandbox]) -> list[str]:
    """Ids of machines without a name here."""
    return [str(one.id) for one in sandboxes if not one.is_tracked]
