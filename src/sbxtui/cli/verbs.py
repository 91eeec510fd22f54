"""The verbs of `sbx` with their flags, by group. Each names its code as `module:function`, imported when it runs."""

from __future__ import annotations

from sbxtui.cli.adder import Adder, Arguments, destructive, wide
from sbxtui.cli.argtypes import (
    count,
    label_pair,
    memory_mib,
    no_zero_seconds,
    one_or_more,
    passed_variable,
    path,
    seconds,
    secret_wish,
    some_seconds,
    usd,
)
from sbxtui.cli.faultverbs import add_fault_verbs
from sbxtui.cli.forwardverbs import add_forward_verbs
from sbxtui.cli.imageverbs import add_base_verbs, add_image_verbs
from sbxtui.cli.mcpverbs import add_mcp_verbs
from sbxtui.cli.secretverbs import add_secret_verbs
from sbxtui.cli.seeverbs import add_seeing_verbs
from sbxtui.cli.snapshotverbs import add_snapshot_verbs
from sbxtui.cli.syncverbs import add_sync_verbs


def _names(parser: Arguments, *, many: bool = True) -> None:
    if many:
        parser.add_argument("sandboxes", nargs="*", metavar="SANDBOX", help="name, id, unique prefix, or a glob")
        parser.add_argument("--all", action="store_true", help="every tracked sandbox of the context")
    else:
        parser.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")


def _create_flags(parser: Arguments) -> None:
    add = parser.add_argument
    add("--image", "-i", default="", metavar="IMAGE", help="image name or ARN (default: sbx-base)")
    add("--role", default="", metavar="ARN", help="execution role")
    add(
        "--memory",
        "-m",
        type=memory_mib,
        default=0,
        metavar="MIB",
        help="512, 1024, 2048, 4096 or 8192, also as 512M or 2g: picks the image of that size",
    )
    add("--cpus", type=one_or_more, default=0, metavar="N", help="checked against what the size gives")
    env_help = "environment of every command; K alone passes on yours"
    add("--env", type=passed_variable, action="append", default=[], metavar="K=V", help=env_help)
    add("--label", type=label_pair, action="append", default=[], metavar="K=V", help="a label for filters")
    add(
        "--idle",
        type=some_seconds,
        default=0,
        metavar="SECONDS",
        help="suspend after this long without traffic (60 or more)",
    )
    add(
        "--max-duration",
        type=some_seconds,
        default=0,
        metavar="SECONDS",
        help="terminate after this long (at most 8 h)",
    )
    add("--budget", type=usd, default=0.0, metavar="USD", help="live no longer than this pays for, even flat out")
    add("--egress", "-e", action="store_true", help="attach the egress connector of the settings or infra outputs")
    add("--egress-connector", action="append", default=[], metavar="ARN", help="attach this egress connector")
    add("--ingress-connector", action="append", default=[], metavar="ARN", help="attach this ingress connector")
    add("--network", default="", metavar="POLICY", help="none, allow=HOST:PORT,… or internet")
    secret_help = "your variable KEY as a secret that goes to these hosts only, and is not readable inside"
    add("--secret", type=secret_wish, action="append", default=[], metavar="KEY[@HOST,…]", help=secret_help)
    add("--workdir", "-w", default="", metavar="DIR", help="working folder of commands (default /work)")


def _lifecycle(add: Adder) -> None:
    create = add("create", "lifecycle:create", "make a sandbox and wait until it answers; prints its name")
    create.add_argument("name", nargs="?", default=None, metavar="NAME", help="omitted: made up")
    _create_flags(create)
    create.add_argument("--replace", action="store_true", help="first remove a sandbox of that name; asks")
    create.add_argument("--yes", "-y", action="store_true", help="do not ask")
    _names(add("stop", "lifecycle:stop", "suspend: memory and disk are kept"))
    _names(add("start", "lifecycle:start", "resume"))
    rm = add("rm", "lifecycle:rm", "terminate and forget")
    _names(rm)
    rm.add_argument("--wait", action="store_true", help="until they have ended, not only until that was accepted")
    destructive(rm)
    wait = add("wait", "lifecycle:wait", "wait for a state")
    _names(wait, many=False)
    wait.add_argument("--for", dest="goal", required=True, choices=["running", "suspended", "terminated", "ready"])
    wait.add_argument("--timeout", type=seconds, default=300.0, metavar="S")
    adopt = add("adopt", "lifecycle:adopt", "give a name to a machine that has none here")
    adopt.add_argument("id", metavar="ID")
    adopt.add_argument("name", nargs="?", default=None, metavar="NAME")
    rename = add("rename", "lifecycle:rename", "give a sandbox another name")
    rename.add_argument("old", metavar="OLD")
    rename.add_argument("new", metavar="NEW")
    label = add("label", "lifecycle:label", "set labels; `K=` removes one")
    _names(label, many=False)
    label.add_argument("labels", nargs="+", type=label_pair, metavar="K=V")
    destructive(add("prune", "lifecycle:prune", "forget the names of sandboxes that are gone"))


def _lists(add: Adder) -> None:
    ls = add(
        "ls",
        "listing:ls",
        "list sandboxes with their live state",
        detail="List sandboxes with their live state. Filters are terms that must all hold, in quotes: state:run, "
        "name=app, image:py, age<1h, cost>.1 for more than so many USD so far, label=KEY=VALUE for that label, "
        "label:KEY= for any value of it, a bare word for text in name, id, image or labels; ! in front turns a term "
        "round.",
    )
    ls.add_argument("--all-contexts", action="store_true", help="of every context")
    ls.add_argument("--all", action="store_true", help="also terminated ones")
    ls.add_argument(
        "--filter",
        default="",
        metavar="EXPR",
        help="like `state:run age<1h cost>.1 label=team=blue !image:py text`",
    )
    ls.add_argument(
        "--sort", default="name", metavar="KEYS", help="name, state, age, image, id, context; -age reverses"
    )
    wide(ls)
    ps = add("ps", "listing:ps", "status of one sandbox, or of all")
    ps.add_argument("sandbox", nargs="?", default="", metavar="SANDBOX")
    wide(ps)
    _names(add("inspect", "listing:inspect", "full control-plane record as JSON"), many=False)


def _commands(add: Adder) -> None:
    run = add(
        "run",
        "oneshot:run",
        "make a sandbox for one command, and remove it",
        detail="Create, run, stream, remove: also when interrupted or killed. Ends after --timeout or one hour.",
        tail="-- CMD…",
    )
    run.add_argument("image_arn", nargs="?", default="", metavar="ARN", help="of the image, before the --")
    _create_flags(run)
    run.add_argument("--name", default=None, help="its name while it lives")
    execute = add("exec", "commands:exec_", "run a command in a sandbox; its exit code is ours", tail="[--] CMD…")
    execute.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    for parser in (run, execute):
        parser.add_argument(
            "--stdin", *(["-i"] if parser is execute else []), action="store_true", help="pass our stdin on"
        )
        parser.add_argument("--tty", "-t", action="store_true", help="run it on a terminal; -it is yours")
        _place(parser, *(["--workdir", "-w"] if parser is execute else []))
        parser.add_argument("--timeout", type=no_zero_seconds, metavar="S", help="kill it with all its children")
    execute.add_argument("--no-flush", action="store_true", help="do not wait until a synced folder is in the sandbox")
    execute.add_argument("--detach", "-d", action="store_true", help="print the job's id and leave it running")
    env_help = "a variable; K alone passes on yours"
    execute.add_argument("--env", "-e", type=passed_variable, action="append", default=[], metavar="K=V", help=env_help)
    execute.add_argument("--env-file", action="append", default=[], metavar="FILE", help="lines of the same")
    shell = add(
        "shell",
        "terminal:shell",
        "open a shell in a sandbox on this terminal",
        detail="Open a shell on this terminal. Ctrl-] leaves it running; `sbx attach` comes back to it.",
    )
    _names(shell, many=False)
    _place(shell, "--workdir", "-w")
    _jobs(add)


def _place(parser: Arguments, *more: str) -> None:
    """Where a command runs and as whom; `more` are other words for its folder."""
    parser.add_argument("--cwd", *more, default="", metavar="DIR", help="working folder (default: the sandbox's)")
    user_help = "name or number, also USER:GROUP (default: the sandbox's)"
    parser.add_argument("--user", "-u", default="", metavar="USER", help=user_help)


def _jobs(add: Adder) -> None:
    listed = add("jobs", "jobs:jobs", "list the commands that run in sandboxes, whoever began them")
    listed.add_argument("sandbox", nargs="?", default="", metavar="SANDBOX")
    listed.add_argument("--all", action="store_true", help="also those that ended")
    wide(listed)
    attach = add("attach", "commands:attach", "take up a job: its output, its input, its exit code")
    _job(attach)
    attach.add_argument("--stdin", "-i", action="store_true", help="pass our stdin on, which need not be a terminal")
    attach.add_argument("--no-stdin", action="store_true", help="only watch")
    output = add("output", "jobs:output", "print what a job has said")
    _job(output)
    output.add_argument("--follow", action="store_true", help="go on until it ends; Ctrl-C leaves it running")
    output.add_argument("--tail", type=count, default=None, metavar="N", help="the last N lines")
    for parser in (attach, output):
        parser.add_argument("--raw", action="store_true", help="pass a terminal's escapes on to yours as they are")
        parser.add_argument(
            "--from", dest="start", type=count, default=None, metavar="N", help="begin at byte N of its output"
        )
    kill = add("kill", "jobs:kill", "end a job with everything it started, or signal it")
    _job(kill)
    signal_help = "send this one, by name or number (default: TERM, and after 3 s KILL to all it ever started)"
    kill.add_argument("--signal", "-s", default="", metavar="SIG", help=signal_help)


def _job(parser: Arguments) -> None:
    parser.add_argument("sandbox", nargs="?", default="", metavar="SANDBOX")
    parser.add_argument("job", metavar="JOB", help="id, or a unique prefix of one")


def _files(add: Adder) -> None:
    copy = add("cp", "files:copy", "copy files: one side is SANDBOX:PATH")
    copy.add_argument("-r", "--recursive", action="store_true", help="copy folders")
    copy.add_argument("source", type=path, metavar="SRC")
    copy.add_argument("target", type=path, metavar="DST")
    verbs = add.group("fs", "look at and change files in a sandbox")
    listed = _fs(verbs, "ls", "list a folder")
    listed.add_argument("path", nargs="?", default="", metavar="PATH")
    told = _fs(verbs, "stat", "tell size, mode and times")
    for parser in (listed, told):
        wide(parser)
    for parser in (told, _fs(verbs, "cat", "print files"), _fs(verbs, "mkdir", "make folders")):
        parser.add_argument("paths", nargs="+", type=path, metavar="PATH")
    remove = _fs(verbs, "rm", "remove files")
    remove.add_argument("paths", nargs="+", type=path, metavar="PATH")
    move, copy_inside = _fs(verbs, "mv", "move"), _fs(verbs, "cp", "copy inside the sandbox")
    for parser in (move, copy_inside):
        parser.add_argument("source", type=path, metavar="SRC")
        parser.add_argument("target", type=path, metavar="DST")
    for parser in (remove, copy_inside):
        parser.add_argument("-r", "--recursive", action="store_true", help="folders too")
    _fs(verbs, "write", "write our stdin to a file").add_argument("path", type=path, metavar="PATH")


def _fs(verbs: Adder, name: str, help_text: str) -> Arguments:
    parser = verbs(name, f"files:fs_{name}", help_text)
    _names(parser, many=False)
    return parser


def _network(add: Adder) -> None:
    network = add(
        "network",
        "network:network",
        "what a sandbox may reach, and what it asked for",
        detail="A RULE is HOST:PORT, *.DOMAIN:PORT or a preset; a change holds at once, for open connections too.",
    )
    network.add_argument("sandbox", nargs="?", default="", metavar="SANDBOX", help="name, id, or unique prefix")
    flag = network.add_argument
    flag("--allow", action="append", default=[], metavar="RULE,…", help="allow these too")
    flag("--deny", action="append", default=[], metavar="RULE,…", help="take these rules back")
    flag("--none", action="store_true", help="no network; with --allow: nothing but that")
    flag("--internet", action="store_true", help="all of the public internet")
    flag("--log", action="store_true", help="what it asked for, and what was allowed or refused")
    flag("--follow", action="store_true", help="go on as it asks")
    flag("--tail", type=count, default=50, metavar="N", help="the last N of the log (default 50)")
    flag("--presets", action="store_true", help="the presets and their hosts")


def _set_up(add: Adder) -> None:
    context = add.group("context", "control planes: the local cloud, or AWS profiles and regions")
    wide(context("ls", "contexts:ls", "list contexts"))
    context("use", "contexts:use", "make a context the one in use").add_argument("name", metavar="NAME")
    added = context("add", "contexts:add", "add an AWS context; takes --region, --profile")
    added.add_argument("name", metavar="NAME")
    added.add_argument("--endpoint-url", default="", metavar="URL", help="any server that speaks the same API")
    _destructive_one(context("rm", "contexts:rm", "remove a context; its sandboxes live on"))
    add_image_verbs(add)
    local = add.group("local", "the local cloud on this machine")
    setup = local("setup", "local:setup", "fetch gVisor for local sandboxes, without root; the only verb that fetches")
    setup.add_argument("--runsc", default="", metavar="PATH", help="use this runsc instead of fetching one")
    local("status", "local:status", "what runs, and how it isolates")
    env = local("env", "local:env", "print the lines with which any other AWS client drives it")
    env.add_argument("--shell", default="sh", choices=["sh", "fish", "powershell", "cmd"])
    local("stop", "local:stop", "stop serving; sandboxes live on")
    destructive(local("reset", "local:reset", "terminate all local sandboxes and delete all their files"))
    add_base_verbs(local)
    add_fault_verbs(local)
    runner = add.group("runner", "the process that keeps detached work alive")
    runner("status", "runner:status", "whether it runs, and for what")
    runner("stop", "runner:stop", "ask it to finish")
    completion = add("completion", "completion:completion", "print the completion script of a shell")
    completion.add_argument("shell", choices=["bash", "zsh", "fish", "words"])
    trust = add("trust", "contexts:trust", "trust the project file of a folder as it is now")
    trust.add_argument("folder", nargs="?", default=".", metavar="DIR")
    tui = add("tui", "dashboard:tui", "open the dashboard")
    tui.add_argument("--read-only", action="store_true", help="nothing can be changed, only looked at")


def _destructive_one(parser: Arguments) -> None:
    parser.add_argument("name", metavar="NAME")
    destructive(parser)


def add_verbs(add: Adder) -> None:
    """Add every verb."""
    for add_group in (
        _lifecycle,
        add_snapshot_verbs,
        _lists,
        _commands,
        _files,
        add_sync_verbs,
        add_forward_verbs,
        _network,
        add_secret_verbs,
        add_seeing_verbs,
        add_mcp_verbs,
        _set_up,
    ):
        add_group(add)
