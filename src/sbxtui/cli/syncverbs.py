"""The verbs of `sbx sync` with their flags."""

from __future__ import annotations

from sbxtui.cli.adder import Adder, Arguments, destructive, wide

_PLAIN = (
    ("status", "how a sync is"),
    ("pause", "carry nothing over for now"),
    ("stop", "end a sync and forget what both sides agreed on; no file is touched"),
    ("flush", "wait until everything saved by now is in the sandbox"),
)
VERBS = frozenset({"start", "ls", "conflicts", "resume", "pull", "diff", "resolve", "undo"}) | {
    name for name, _ in _PLAIN
}
VALUE_FLAGS = frozenset({"--to", "--mode", "--keep", "--on-conflict", "--as-branch", "--as-patch"})


def add_sync_verbs(add: Adder) -> None:
    """Add `sync` with its verbs."""
    verbs = add.group(
        "sync",
        "keep a folder of a sandbox as a folder of this machine is",
        detail="`sbx sync SANDBOX [DIR]` carries over each change as it is saved, until Ctrl-C.",
    )
    _add_start(verbs)
    wide(verbs("ls", "sync:ls", "list synced folders"))
    for name, help_text in _PLAIN:
        _of_sandbox(verbs(name, f"sync:{name}", help_text))
    wide(_of_sandbox(verbs("conflicts", "sync:conflicts", "paths both sides changed, each left as it is")))
    _add_consents(_of_sandbox(verbs("resume", "sync:resume", "go on; after a halt, compare anew and delete nothing")))
    _add_review(verbs)


def _add_start(verbs: Adder) -> None:
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
        "--on-conflict",
        default="stop",
        choices=["stop", "local", "guest", "merge"],
        help="what becomes of paths both sides changed (default: they stay); guest and merge need --mode two-way",
    )
    _add_consents(start)
    start.add_argument("--detach", "-d", action="store_true", help="leave it running when this ends")
    start.add_argument("--once", action="store_true", help="carry over what differs now, and end")


def _add_review(verbs: Adder) -> None:
    pull = _of_sandbox(verbs("pull", "syncreview:pull", "take over what the sandbox changed, after a look at it"))
    pull.add_argument("--accept-deletes", action="store_true", help="also if it deleted much of the folder")
    pull.add_argument("--as-branch", default="", metavar="NAME", help="as a commit on a new git branch instead")
    pull.add_argument("--as-patch", default="", metavar="FILE", help="as a patch for `git apply` instead")
    diff = _of_sandbox(verbs("diff", "syncreview:diff", "what the sandbox changed, as a patch for `git apply`"))
    for parser in (pull, diff):
        parser.add_argument("paths", nargs="*", metavar="PATH", help="only these, and what is below them")
    resolve = _of_sandbox(verbs("resolve", "syncresolve:resolve_", "decide conflicts"))
    resolve.add_argument("paths", nargs="+", metavar="PATH")
    resolve.add_argument(
        "--keep",
        default="",
        choices=["local", "guest", "both"],
        help="whose version stays; the other goes to the trash. both: the sandbox's beside it, as NAME.sandbox.EXT",
    )
    for side in ("local", "guest"):
        resolve.add_argument(f"--{side}", action="store_true", help=f"the same as `--keep {side}`")
    resolve.add_argument("--merge", action="store_true", help="a text with the changes of both, as git merges it")
    undo = _of_sandbox(verbs("undo", "syncundo:undo_", "take back the last pull or decision"))
    undo.add_argument("--pushed", action="store_true", help="what was last replaced or removed in the sandbox instead")
    undo.add_argument("--again", action="store_true", help="what could not be taken back before")
    for parser in (pull, undo):
        destructive(parser)


def _add_consents(parser: Arguments) -> None:
    parser.add_argument(
        "--accept-deletes", action="store_true", help="of a mirror: the first comparison may delete what only it has"
    )
    parser.add_argument("--accept-large", action="store_true", help="the first comparison may send more than 2 GiB")


def _of_sandbox(parser: Arguments) -> Arguments:
    parser.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    return parser
