"""What became of one step of a plan."""

from __future__ import annotations

from typing import NamedTuple

from sbxguest.tree import Result
from sbxtui.services.sync.model import Change


class Made(NamedTuple):
    """What became of a step: the change, and the result; None if it was not even tried, because its file changed."""

    change: Change
    result: Result | None
