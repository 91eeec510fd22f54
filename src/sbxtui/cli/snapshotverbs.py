"""`snapshot` with its verbs, and `fork`, with their flags."""

from __future__ import annotations

from sbxtui.cli.adder import Adder, Arguments, destructive, wide
from sbxtui.cli.argtypes import label_pair, passed_variable, some_seconds


def add_snapshot_verbs(add: Adder) -> None:
    """Add both."""
    verbs = add.group("snapshot", "copies of sandboxes, to make others from; of local ones only")
    create = _of_sandbox(verbs("create", "snapshots:create", "copy a sandbox as it stands; prints the copy's name"))
    create.add_argument("name", nargs="?", default=None, metavar="NAME", help="omitted: the sandbox's, with a number")
    listed = verbs("ls", "snapshots:ls", "list snapshots")
    wide(listed)
    restore = verbs("restore", "snapshots:restore", "make a sandbox that goes on from a snapshot; prints its name")
    restore.add_argument("snapshot", metavar="NAME", help="the snapshot's")
    restore.add_argument("name", nargs="?", default=None, metavar="NEW", help="the sandbox's; omitted: made up")
    _new_sandbox(restore)
    restore.add_argument("--replace", action="store_true", help="first remove a sandbox of that name; asks")
    removed = verbs("rm", "snapshots:rm", "delete snapshots; sandboxes made from them live on")
    removed.add_argument("snapshots", nargs="+", metavar="NAME")
    destructive(removed)
    restore.add_argument("--yes", "-y", action="store_true", help="do not ask")
    fork = add(
        "fork",
        "snapshots:fork",
        "make a second sandbox that goes on from where one is now; prints its name",
        detail="Make a second sandbox that goes on from where one is now, with its running processes where it has a "
        "kernel of its own (gVisor), else with its files. Local sandboxes only.",
    )
    _of_sandbox(fork).add_argument("name", nargs="?", default=None, metavar="NEW", help="omitted: made up")
    _new_sandbox(fork)


def _of_sandbox(parser: Arguments) -> Arguments:
    parser.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    return parser


def _new_sandbox(parser: Arguments) -> None:
    flag = parser.add_argument
    flag(
        "--env",
        type=passed_variable,
        action="append",
        default=[],
        metavar="K=V",
        help="more environment of every command",
    )
    flag("--label", type=label_pair, action="append", default=[], metavar="K=V", help="a label for filters")
    idle_help = "suspend after this long without traffic (60 or more)"
    flag("--idle", type=some_seconds, default=0, metavar="SECONDS", help=idle_help)
    flag("--max-duration", type=some_seconds, default=0, metavar="SECONDS", help="terminate after this long")
    flag("--network", default="", metavar="POLICY", help="none, allow=HOST:PORT,… or internet (default: as it was)")
