"""What the words behind flags may be: a converter each, whose mistakes argparse tells."""

from __future__ import annotations

import argparse
import re

from sbxtui.core.text import parse_duration_s, parse_memory_mib

_MAX_LABEL = 1_024
# What every place that counts holds, the store's 64 bits among them.
_MOST_DIGITS = 15
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def seconds(text: str) -> float:
    """A duration argument in seconds: `90`, `10m`, `2h30m`."""
    try:
        return parse_duration_s(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def no_zero_seconds(text: str) -> float:
    """The same, and more than nothing, which some take for no limit and some for the usual one."""
    if not (found := seconds(text)):
        raise argparse.ArgumentTypeError(f"`{text}` is too short; leave it out for the default")
    return found


def whole_seconds(text: str) -> int:
    """A duration argument in whole seconds."""
    return round(seconds(text))


def some_seconds(text: str) -> int:
    """The same, and more than none: leaving the flag out is what means the default."""
    if (found := whole_seconds(text)) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is too short; leave it out for the default")
    return found


def memory_mib(text: str) -> int:
    """A memory size in MiB: `512`, `512M`, `2g`."""
    try:
        return parse_memory_mib(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def one_or_more(text: str) -> int:
    """A whole number from 1 on."""
    if not (found := count(text)):
        raise argparse.ArgumentTypeError(f"`{text}` is not possible: 1 or more")
    return found


def count(text: str) -> int:
    """A whole number from 0 on."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"`{text}` is no whole number")
    if len(text) > _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"`{text[:_MOST_DIGITS]}…` has too many digits")
    return int(text)


def path(text: str) -> str:
    """A path: nothing at all is a variable that was empty, and no folder."""
    if not text:
        raise argparse.ArgumentTypeError("a path cannot be empty")
    return text


def pair(text: str) -> tuple[str, str]:
    """A `KEY=VALUE` argument."""
    key, sign, value = text.partition("=")
    if not sign or not key or "\0" in text:
        raise argparse.ArgumentTypeError(f"`{text}` must be KEY=VALUE")
    return key, value


def secret_wish(text: str) -> tuple[str, tuple[str, ...]]:
    """A `KEY[@HOST,…]` argument: the variable, and where its value may go."""
    key, _, hosts = text.partition("@")
    if "=" in key:
        # What stands behind it may be the value: it is not told again.
        raise argparse.ArgumentTypeError("it takes no value, which every process could read: export KEY, name KEY here")
    if not _VARIABLE.fullmatch(key):
        raise argparse.ArgumentTypeError(f"`{text}` must be KEY or KEY@HOST,…")
    return key, tuple(host for host in hosts.split(",") if host)


def label_pair(text: str) -> tuple[str, str]:
    """A `KEY=VALUE` argument for a label."""
    if len(text) > _MAX_LABEL:
        raise argparse.ArgumentTypeError(f"a label has at most {_MAX_LABEL} characters, this one {len(text)}")
    return pair(text)


def variable(text: str) -> tuple[str, str]:
    """A `NAME=VALUE` argument for the environment."""
    name, value = pair(text)
    return _variable_name(name), value


def passed_variable(text: str) -> tuple[str, str | None]:
    """The same, or as with docker a `NAME` alone, without a value: the person's own is meant."""
    return variable(text) if "=" in text else (_variable_name(text), None)


def _variable_name(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise argparse.ArgumentTypeError(f"`{name}` cannot name a variable: letters, digits and _, no digit first")
    return name


def usd(text: str) -> float:
    """An amount of money, more than nothing: `2.50`, `$2.50`."""
    # What most command lines do without.
    from sbxtui.core.errors import UsageError
    from sbxtui.core.pricing import usd_of

    try:
        return usd_of(text)
    except UsageError as exc:
        raise argparse.ArgumentTypeError(exc.message) from exc
