"""The verbs of `sbx forward`, and `sbx ports`, with their flags."""

from __future__ import annotations

from sbxtui.cli.adder import Adder, Arguments, wide

VERBS = frozenset({"start", "ls", "stop"})
VALUE_FLAGS = frozenset(
    {"--bind", "--host", "--allow-origin", "--remote-port", "-r", "--local-port", "-l", "--poll-interval", "--mode"}
)


def add_forward_verbs(add: Adder) -> None:
    """Add `forward` with its verbs, and `ports`."""
    verbs = add.group(
        "forward",
        "reach ports of a sandbox on this machine, as if its servers ran here",
        detail="`sbx forward SANDBOX 8000` opens the sandbox's port 8000 on this machine, until Ctrl-C.",
    )
    start = _of_sandbox(verbs("start", "forward:start", "forward ports until Ctrl-C"))
    flag = start.add_argument
    flag("ports", nargs="*", metavar="PORT", help="PORT, LOCAL:REMOTE, or :REMOTE for any free local port")
    flag("--detach", "-d", action="store_true", help="leave it running when this ends")
    flag("--any-port", action="store_true", help="take the next free local port for one that is taken")
    modes = "through its guest (tunnel: anything) or its endpoint (proxy: HTTP); default: as its image allows"
    flag("--mode", choices=("tunnel", "proxy"), default="", help=modes)
    flag("--bind", default="", metavar="ADDR", help="listen on this address instead of loopback: others may connect")
    flag("--host", action="append", default=[], metavar="NAME", help="let a browser call this machine NAME, too")
    flag("--allow-origin", action="append", default=[], metavar="ORIGIN", help="let pages of this site change things")
    flag("--remote-port", "-r", type=int, default=0, metavar="PORT", help="the sandbox's port, as LOCAL:REMOTE has it")
    flag("--local-port", "-l", type=int, default=0, metavar="PORT", help="this machine's (default: the same)")
    flag("--no-verify-tls", action="store_true", help="do not check the certificate of the sandbox's endpoint")
    flag("--poll-interval", default="", metavar="S", help="taken for old scripts: nothing is polled any more")
    wide(verbs("ls", "forward:ls", "list forwarded ports"))
    stop = _of_sandbox(verbs("stop", "forward:stop", "end forwards of a sandbox"))
    stop.add_argument("ports", nargs="*", type=int, metavar="LOCAL", help="only these ports of this machine")
    ports = add("ports", "forward:ports", "what listens inside a sandbox")
    wide(_of_sandbox(ports))


def _of_sandbox(parser: Arguments) -> Arguments:
    parser.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    return parser
