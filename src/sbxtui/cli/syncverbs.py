"""The verbs of `sbx sync` with their flags."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sbxtui.cli.adder import Adder, Arguments

_PLAIN = (
    ("status", "how a sync is"),
    ("pause", "carry nothing over for now"),
    ("resume", "go on; after a halt, compare anew and delete nothing"),
    ("stop", "end a sync and forget what both sides agreed on; no file is touched"),
    ("flush", "wait until everything saved by now is in the sandbox"),
    ("conflicts", "paths both sides changed, each left as it is"),
)
_VERBS = frozenset({"start", "ls", "pull", "diff", "resolve", "undo", *(name for name, _ in _PLAIN)})
_VALUE_FLAGS = frozenset({"--to", "--mode"})


def add_sync_verbs(add: Adder) -> None:
    """Add `sync` with its verbs."""
    verbs = add.group(
        "sync",
        "keep a folder of a sandbox as a folder of this machine is",
        detail="`sbx sync SANDBOX [DIR]` carries over each change as it is saved, until Ctrl-C.",
    )
    start = _of_sandbox(verbs("start", "sync:start", "carry each change over as it is saved, until Ctrl-C"))
    start.add_argument("folder", nargs="?", default=".", metavar="DIR", help="of this machine (default: this one)")
    start.add_argument("--to", default="", metavar="PATH", help="folder of the sandbox (default: its work folder)")
    start.add_argument(
        "--mode",
        default="push",
        choices=["push", "two-way", "mirror"],
        help="two-way: also take over what the sandbox changes; mirror: also remove what only it has",
    )
    start.add_argument(
        "--accept-deletes", action="store_true", help="of a mirror: the first comparison may delete what only it has"
    )
    start.add_argument("--detach", "-d", action="store_true", help="leave it running when this ends")
    start.add_argument("--once", action="store_true", help="carry over what differs now, and end")
    verbs("ls", "sync:ls", "list synced folders")
    for name, help_text in _PLAIN:
        _of_sandbox(verbs(name, f"sync:{name}", help_text))
    pull = _of_sandbox(verbs("pull", "syncreview:pull", "take over what the sandbox changed, after a look at it"))
    pull.add_argument("--accept-deletes", action="store_true", help="also if it deleted much of the folder")
    diff = _of_sandbox(verbs("diff", "syncreview:diff", "what the sandbox changed, as a patch for `git apply`"))
    for parser in (pull, diff):
        parser.add_argument("paths", nargs="*", metavar="PATH", help="only these, and what is below them")
    resolve = _of_sandbox(verbs("resolve", "syncreview:resolve_", "decide conflicts for one side"))
    resolve.add_argument("paths", nargs="+", metavar="PATH")
    for side, owner in (("local", "this machine's"), ("guest", "the sandbox's")):
        resolve.add_argument(f"--{side}", action="store_true", help=f"{owner} version; the other goes to the trash")
    undo = _of_sandbox(verbs("undo", "syncreview:undo_", "take back the last pull or decision"))
    undo.add_argument("--pushed", action="store_true", help="what was last replaced or removed in the sandbox instead")
    for parser in (pull, undo):
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")


def _of_sandbox(parser: Arguments) -> Arguments:
    parser.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    return parser


def with_start(words: Sequence[str], verb: int | None, value_flags: Collection[str]) -> list[str]:
    """`sync SANDBOX …` as `sync start SANDBOX …`, and flags before all other words: argparse gives up between them.

    Args:
        words: A whole line.
        verb: Where its verb is.
        value_flags: The global flags that take a value.
    """
    if verb is None or words[verb] != "sync":
        return list(words)
    flags: list[str] = []
    others: list[str] = []
    at = verb + 1
    while at < len(words):
        word = words[at]
        if word == "--":
            others += words[at:]
            break
        size = 2 if word in _VALUE_FLAGS or word in value_flags else 1
        (flags if word.startswith("-") and word != "-" else others).extend(words[at : at + size])
        at += size
    start = ["start"] if others and others[0] not in _VERBS else []
    return [*words[: verb + 1], *start, *others[: not start], *flags, *others[not start :]]
