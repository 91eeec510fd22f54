"""The verbs of `sbx secret` with their flags."""

from __future__ import annotations

from sbxtui.cli.adder import Adder, wide


def add_secret_verbs(add: Adder) -> None:
    """Add `secret` with its verbs."""
    verbs = add.group("secret", "let programs in a sandbox use a key that they cannot read")
    put = verbs(
        "set",
        "secret:set_",
        "give one, or change its value; read from stdin, or asked for",
        detail="Programs find a placeholder in the variable KEY. On the way to the named hosts, and to no others, the "
        "proxy of this machine puts the value in its place. A HOST is HOST (TLS, port 443), HOST:PORT, *.DOMAIN, "
        "http://HOST, or a preset of `sbx network --presets`. Left out: those it had, or the usual ones of that name.",
    )
    put.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    put.add_argument("key", metavar="KEY", help="the variable, like API_TOKEN")
    put.add_argument("--host", action="append", default=[], metavar="HOST,…", help="where it may go")
    put.add_argument(
        "--from-env", nargs="?", const="", default=None, metavar="VAR", help="take your variable KEY, or VAR"
    )
    listed = verbs("ls", "secret:ls", "list them, without their values")
    wide(listed)
    listed.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    removed = verbs("rm", "secret:rm", "take one back; nothing carries it from then on")
    removed.add_argument("sandbox", metavar="SANDBOX", help="name, id, or unique prefix")
    removed.add_argument("key", metavar="KEY")
