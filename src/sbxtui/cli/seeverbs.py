"""The verbs that look (`logs metrics top events doctor`) and those about cost and life, with their flags."""

from __future__ import annotations

from sbxtui.cli.adder import Adder, Arguments, wide
from sbxtui.cli.argtypes import count, no_zero_seconds, seconds, usd


def add_seeing_verbs(add: Adder) -> None:
    """Add them."""
    _logs(add)
    _usage(add)
    _costs(add)


def _of_sandbox(parser: Arguments) -> Arguments:
    parser.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    return parser


def _costs(add: Adder) -> None:
    cost = add(
        "cost",
        "costs:cost",
        "what sandboxes cost: an hour, so far, and at the end of their lives",
        detail="What sandboxes cost, and what becomes of each by itself. For the local cloud: what AWS would charge.",
    )
    cost.add_argument("sandbox", nargs="?", default="", metavar="SANDBOX", help="with its jobs; omitted: all")
    wide(cost)
    budget = _of_sandbox(add("budget", "costs:budget", "what a running sandbox may cost in all; without USD: tell"))
    budget.add_argument("usd", nargs="?", type=usd, default=None, metavar="USD", help="for all of its life")
    budget.add_argument("--terminate", action="store_true", help="end it when that is spent, instead of suspending it")
    budget.add_argument("--clear", action="store_true", help="take the budget back")
    awake = add(
        "keep-awake",
        "costs:keep_awake",
        "keep a sandbox from falling asleep while a job runs, or until a time",
        detail="The platform takes only traffic for activity: a silent job is suspended in the middle. Without "
        "SANDBOX: those that are kept awake.",
    )
    awake.add_argument("sandbox", nargs="?", default="", metavar="SANDBOX", help="name, id, or unique prefix")
    awake.add_argument("--until", default="", metavar="job|TIME", help="while a job runs; or 2h, or 2026-01-31T12:00")
    awake.add_argument(
        "--deadline", type=no_zero_seconds, default=0.0, metavar="S", help="in any case no longer (default: 8h)"
    )
    awake.add_argument("--budget", type=usd, default=None, metavar="USD", help="nor for more than this")
    awake.add_argument("--stop", action="store_true", help="let it fall asleep again")


def _logs(add: Adder) -> None:
    logs = _of_sandbox(
        add(
            "logs",
            "logs:logs",
            "what a sandbox says: the lines of all its commands, and what happens to its guest",
            detail="The lines of all commands of a sandbox, in order, with whose they are. Looking keeps nothing "
            "awake. A TIME is 10m or 2h30m ago, or 2026-01-31T12:00, here unless it says otherwise.",
        )
    )
    flag = logs.add_argument
    flag("--follow", action="store_true", help="go on with what is said, until Ctrl-C or the sandbox's end")
    flag("--since", default="", metavar="TIME", help="only what was said after it")
    flag("--until", default="", metavar="TIME", help="only what was said before it")
    flag("--tail", type=count, default=None, metavar="N", help="of what is there, the last N lines")
    flag("--grep", default="", metavar="RE", help="only lines in which this regular expression is found")
    flag("--job", default="", metavar="JOB", help="only this job's, by its id or the beginning; `guest` is the guest's")
    source_help = "guest (its own, the default), cloudwatch (what the platform kept) or build (of its image)"
    flag("--source", default="guest", choices=["guest", "cloudwatch", "build"], help=source_help)
    flag("--log-group", default="", metavar="GROUP", help="of CloudWatch, where it is not the platform's own")
    flag("--raw", action="store_true", help="pass escapes on to your terminal as they are")


def _usage(add: Adder) -> None:
    metrics = add("metrics", "usage:metrics", "what a sandbox uses: cpu, memory, disk, network, processes")
    _of_sandbox(metrics)
    top = add(
        "top",
        "usage:top",
        "what all sandboxes use, the busiest first",
        detail="What all sandboxes use. One that would be kept awake by looking is left alone, and says so.",
    )
    top.add_argument("--sort", default="cpu", metavar="KEY", help="cpu, memory, disk, processes or name")
    wide(top)
    for parser in (metrics, top):
        parser.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
        parser.add_argument("--interval", type=seconds, default=2.0, metavar="S", help="pause between looks (2 s)")
    events = add("events", "seeing:events", "who did what")
    events.add_argument("--follow", action="store_true", help="go on as events happen")
    events.add_argument("--tail", type=count, default=50, metavar="N", help="the last N (default 50)")
    wide(events)
    events.add_argument("sandbox", nargs="?", default="", metavar="SANDBOX")
    add("doctor", "seeing:doctor", "check this machine, the context and the isolation")
