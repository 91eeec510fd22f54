"""What workers tell the screens. Only handlers of these touch widgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.message import Message

from sbxtui.core.errors import SbxError
from sbxtui.core.isolation import Shortfall
from sbxtui.core.model import Context, Sandbox, SandboxId, SandboxRecord
from sbxtui.core.values import dataclass

if TYPE_CHECKING:
    from sbxtui.services.inventory import Inventory
    from sbxtui.services.targets import Outcome


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known before anybody was asked: the context, its rows as last seen, its isolation in words."""

    context: Context
    inventory: Inventory
    isolation: str


class Opened(Message):
    """The store is open, or cannot be opened: then `opening` is None and `error` says why."""

    def __init__(self, opening: Opening | None, error: SbxError | None = None) -> None:
        super().__init__()
        self.opening = opening
        self.error = error


class Seen(Message):
    """The control plane was asked, and how new sandboxes are isolated there, and why not more."""

    def __init__(self, inventory: Inventory, isolation: str, shortfall: Shortfall) -> None:
        super().__init__()
        self.inventory = inventory
        self.isolation = isolation
        self.shortfall = shortfall


class Progress(Message):
    """A piece of work goes on: what it does now, in words."""

    def __init__(self, work: str, words: str) -> None:
        super().__init__()
        self.work = work
        self.words = words


class Created(Message):
    """A launch ended; with `error` there is no sandbox."""

    def __init__(self, work: str, name: str, error: SbxError | None = None) -> None:
        super().__init__()
        self.work = work
        self.name = name
        self.error = error


class LossesSeen(Message):
    """What removing sandboxes would end: lines for each of `targets`, in their order."""

    def __init__(self, targets: Sequence[Sandbox], lines: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.targets = targets
        self.lines = lines


class Changed(Message):
    """A change of one or several sandboxes ended, each in its own way. `done` is the verb as a participle."""

    def __init__(self, work: str, done: str, outcomes: Sequence[Outcome], targets: Sequence[Sandbox]) -> None:
        super().__init__()
        self.targets = list(targets)
        self.work = work
        self.done = done
        self.outcomes = list(outcomes)


class RecordSeen(Message):
    """The control plane told its record of one sandbox, or why not. `is_asked` is true when a person waits for it."""

    def __init__(
        self, sandbox_id: SandboxId, record: SandboxRecord | None, error: SbxError | None, *, is_asked: bool
    ) -> None:
        super().__init__()
        self.sandbox_id = sandbox_id
        self.record = record
        self.error = error
        self.is_asked = is_asked


class ContextsSeen(Message):
    """The known contexts were read."""

    def __init__(self, contexts: Sequence[Context]) -> None:
        super().__init__()
        self.contexts = list(contexts)


class ContextAsked(Message):
    """The person wants to look at another context."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class WorkFailed(Message):
    """Background work failed as no service promises."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class LeaveAsked(Message):
    """The person wants to leave, and was asked if anything would be cut off."""
