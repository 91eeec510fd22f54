"""What a sandbox may reach: `none`, `internet`, or an allow list of rules. Pure: deciding asks nobody.

A rule is `HOST:PORT`, `*.DOMAIN:PORT` (every name below the domain, not itself), or the name of a preset.
"""

from __future__ import annotations

from collections.abc import Iterable

from sbxtui.core.destinations import PRESETS
from sbxtui.core.errors import UsageError
from sbxtui.core.hosts import THIS_MACHINE, as_address, authority, split_authority, why_not_public
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass

MAX_RULES = 200
_PREFIX = "allow="


@dataclass(frozen=True, slots=True)
class Rule:
    """One destination; `host` is normal, without the star of a wildcard."""

    host: str
    port: int
    is_wildcard: bool

    def covers(self, host: str, port: int) -> bool:
        """Whether a normal host and a port are meant."""
        if port != self.port:
            return False
        # This machine is no name below any domain: only a rule that says it means it.
        if self.is_wildcard:
            return host.endswith(f".{self.host}") and host != THIS_MACHINE
        return host == self.host


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """A checked policy. `words` are its rules as written, in normal spelling, and `rules` the same with presets spelled
    out; both are empty for `none` and `internet`.
    """

    words: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    is_internet: bool = False

    @property
    def text(self) -> str:
        """The policy in the words people give it in."""
        if self.is_internet:
            return "internet"
        return _PREFIX + ",".join(self.words) if self.words else "none"

    def allows(self, host: str, port: int) -> bool:
        """Whether a sandbox may ask for a normal host and a port; what it resolves to is checked apart from that."""
        return self.names(host, port) or (self.is_internet and host != THIS_MACHINE)

    def names(self, host: str, port: int) -> bool:
        """Whether a rule is about them, so that somebody chose them."""
        return any(rule.covers(host, port) for rule in self.rules)

    def plus(self, words: Iterable[str]) -> NetworkPolicy:
        """With more rules.

        Raises:
            UsageError: A word is no rule, or there are too many.
        """
        if self.is_internet:
            raise UsageError(
                "it reaches the whole internet already",
                hint="`--none` together with `--allow` leaves only what is named",
            )
        return _checked((*self.words, *map(normal_word, words)))

    def minus(self, words: Iterable[str]) -> NetworkPolicy:
        """Without some rules.

        Raises:
            UsageError: One of them is not in the list.
        """
        gone = [normal_word(word) for word in words]
        for word in gone:
            if word not in self.words:
                raise UsageError(f"`{word}` is not in the list", hint=f"it has {', '.join(self.words) or 'no rules'}")
        return _checked(tuple(word for word in self.words if word not in gone))


NO_NETWORK = NetworkPolicy()


def parse_network(text: str) -> NetworkPolicy:
    """A policy from `none`, `internet` or `allow=RULE,…`.

    Raises:
        UsageError: It is none; the message names the part that is wrong.
    """
    if text == "none":
        return NO_NETWORK
    if text == "internet":
        return NetworkPolicy(is_internet=True)
    rules = text.removeprefix(_PREFIX)
    if rules == text or not rules:
        raise UsageError(
            f"`{harmless_line(text)}` is no network", hint="write none, internet, or allow=HOST:PORT,… or allow=PRESET"
        )
    return NO_NETWORK.plus(rules.split(","))


def normal_word(word: str) -> str:
    """A rule in its one spelling.

    Raises:
        UsageError: It is none.
    """
    if word in PRESETS:
        return word
    if word and all(char.isalnum() or char == "-" for char in word):
        raise UsageError(f"`{harmless_line(word, limit=80)}` is no preset", hint=f"presets: {', '.join(PRESETS)}")
    rule = _parse_rule(word)
    return ("*." if rule.is_wildcard else "") + authority(rule.host, rule.port)


def _checked(words: tuple[str, ...]) -> NetworkPolicy:
    unique = tuple(dict.fromkeys(words))
    if len(unique) > MAX_RULES:
        raise UsageError(f"{len(unique)} rules are too many", hint=f"at most {MAX_RULES}; a wildcard covers a domain")
    return NetworkPolicy(unique, tuple(rule for word in unique for rule in _rules_of(word)))


def _rules_of(word: str) -> tuple[Rule, ...]:
    return tuple(map(_parse_rule, PRESETS.get(word, (word,))))


def _parse_rule(text: str) -> Rule:
    shown = harmless_line(text, limit=80)
    is_wildcard = text.startswith("*.")
    try:
        host, port = split_authority(text.removeprefix("*."))
    except ValueError as exc:
        raise UsageError(f"`{shown}` is no rule: {exc}", hint="write HOST:PORT, *.DOMAIN:PORT or a preset") from exc
    address = as_address(host)
    if is_wildcard and (address is not None or "." not in host):
        raise UsageError(f"`{shown}` is too wide", hint="a wildcard stands for the names below a domain: *.example.org")
    if address is not None and (why := why_not_public(address)):
        raise UsageError(
            f"`{shown}` cannot be allowed: {why}",
            hint=f"a service of this machine is {THIS_MACHINE}:PORT; other private addresses cannot be reached",
        )
    return Rule(host, port, is_wildcard)
