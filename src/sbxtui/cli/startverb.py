"""Verbs with verbs of their own of which one goes without saying: `sync SANDBOX` is `sync start SANDBOX`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sbxtui.cli import forwardverbs, syncverbs

# Each with its verbs and the flags of `start` that take a value.
_GROUPS = {
    "sync": (syncverbs.VERBS, syncverbs.VALUE_FLAGS),
    "forward": (forwardverbs.VERBS, forwardverbs.VALUE_FLAGS),
}


def with_start(words: Sequence[str], verb: int | None, value_flags: Collection[str]) -> list[str]:
    """`start` put in where it was left out, and flags before all other words: argparse gives up between them.

    Args:
        words: A whole line.
        verb: Where its verb is.
        value_flags: The global flags that take a value.
    """
    if verb is None or words[verb] not in _GROUPS:
        return list(words)
    verbs, own_value_flags = _GROUPS[words[verb]]
    flags: list[str] = []
    others: list[str] = []
    at = verb + 1
    while at < len(words):
        word = words[at]
        if word == "--":
            others += words[at:]
            break
        size = 2 if word in own_value_flags or word in value_flags else 1
        (flags if word.startswith("-") and word != "-" else others).extend(words[at : at + size])
        at += size
    start = ["start"] if others and others[0] not in verbs else []
    return [*words[: verb + 1], *start, *others[: not start], *flags, *others[not start :]]
