"""`local fault` with its verbs and their flags."""

from __future__ import annotations

import argparse

from sbxtui.cli.adder import Adder, wide

_KINDS = (
    *("latency", "error-500", "html-502", "throttle-429", "quota-402", "drop", "token-expiry", "slow-resume"),
    *("kill-guest", "disk-full", "clock-jump"),
)
_AMOUNT = "milliseconds of latency; bytes before a drop; seconds of slow-resume and clock-jump"


def add_fault_verbs(local: Adder) -> None:
    """Add them to the group `local`."""
    faults = local.group("fault", "have the local cloud's calls go wrong on purpose, until it ends")
    added = faults("add", "rehearsal:add", "have calls go wrong from now on; prints the fault's id")
    added.add_argument("kind", choices=_KINDS, metavar="KIND", help=", ".join(_KINDS))
    flag = added.add_argument
    flag("--op", default="*", metavar="NAME", help="an operation, as RunMicrovm; `endpoint`; or a pattern (default *)")
    flag("--rate", type=_rate, default=1.0, metavar="R", help="the share of calls, 0 to 1 (default 1)")
    flag("--seed", type=int, default=0, metavar="N", help="the same one chooses the same calls again")
    flag("--amount", type=float, default=0.0, metavar="X", help=_AMOUNT)
    flag("--times", type=int, default=0, metavar="N", help="how often at most (default: for ever)")
    wide(faults("ls", "rehearsal:ls", "list faults, and how often each has come"))
    cleared = faults("clear", "rehearsal:clear", "take a fault away, or all")
    cleared.add_argument("id", nargs="?", default="", metavar="ID")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError("it is no number") from exc
    if not 0 <= rate <= 1:
        raise argparse.ArgumentTypeError("it must be from 0 to 1")
    return rate
