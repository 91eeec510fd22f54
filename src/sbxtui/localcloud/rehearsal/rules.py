"""The rules of faults on purpose: each has a kind, an operation, a rate, and a seed that makes its choices repeat.

They live as long as the process: a restart is the way out of every fault.
"""

from __future__ import annotations

import fnmatch
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

ENDPOINT = "endpoint"
_EVERY = "*"


class Kind(StrEnum):
    """What goes wrong. The amount is milliseconds of latency, bytes before a drop, seconds of a resume or a jump."""

    LATENCY = "latency"
    ERROR = "error-500"
    HTML = "html-502"
    THROTTLE = "throttle-429"
    QUOTA = "quota-402"
    DROP = "drop"
    TOKEN = "token-expiry"
    SLOW_RESUME = "slow-resume"
    KILL = "kill-guest"
    DISK = "disk-full"
    CLOCK = "clock-jump"


@dataclass(slots=True)
class Rule:
    """One fault. `operation` is a name of the API's, `endpoint`, or a pattern with `*`; `left` counts down to nothing,
    and below zero it holds for ever.
    """

    id: str
    kind: Kind
    operation: str = _EVERY
    rate: float = 1.0
    seed: int = 0
    amount: float = 0.0
    left: int = -1
    fired: int = 0
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Choices that repeat are what a seed is for; nothing secret hangs on them.
        self._random = random.Random(self.seed)

    def fires(self, operation: str) -> bool:
        """Whether this call goes wrong; asking is counted."""
        if self.left == 0 or not fnmatch.fnmatchcase(operation, self.operation):
            return False
        if self._random.random() >= self.rate:
            return False
        self.fired += 1
        self.left -= self.left > 0
        return True


class RuleBook:
    """All rules of a process, in the order in which they were made."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self._numbers = itertools.count(1)

    def add(self, kind: Kind, operation: str, *, rate: float, seed: int, amount: float, times: int) -> Rule:
        """Make a rule; `times` 0 is for ever."""
        rule = Rule(f"f{next(self._numbers)}", kind, operation, rate, seed, amount, times or -1)
        self._rules[rule.id] = rule
        return rule

    def all(self) -> list[Rule]:
        """All of them."""
        return list(self._rules.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing goes wrong on purpose."""
        return not self._rules

    def remove(self, rule_id: str) -> bool:
        """Take one away; False: there is none."""
        return self._rules.pop(rule_id, None) is not None

    def clear(self) -> None:
        """Take all away."""
        self._rules.clear()

    def firing(self, operation: str, *kinds: Kind) -> Iterator[Rule]:
        """The rules of these kinds by which this call goes wrong."""
        for rule in self.all():
            if rule.kind in kinds and rule.fires(operation):
                yield rule

    @property
    def clock_shift(self) -> timedelta:
        """How far this process's clock is off."""
        return timedelta(seconds=sum(rule.amount for rule in self.all() if rule.kind is Kind.CLOCK))
