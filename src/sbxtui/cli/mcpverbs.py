"""The verbs of `sbx mcp` with their flags."""

from __future__ import annotations

from collections.abc import Sequence

from sbxtui.cli.adder import Adder, wide

_FLAG = "--mcp"
_SAYS = {
    "pause": "have a client's calls wait; after 30 s they are refused",
    "ask": "have each of its calls that would change something wait until you approve it",
    "resume": "let it go on",
    "end": "cut it off: what it does is ended, and so is its server",
}
_ANSWERS = {"approve": "let a call that waits go on", "deny": "refuse it"}
_VERBS = frozenset({"serve", "config", "doctor", "ls", *_SAYS, *_ANSWERS})
_CLIENTS = "claude-code, claude-desktop, cursor, vscode, windsurf, goose, codex, pi or generic"


def with_serve(words: Sequence[str], verb: int | None) -> list[str]:
    """`--mcp` in place of a verb, and a bare `mcp`, as `mcp serve`: it is what clients start.

    Args:
        words: A whole line.
        verb: Where its verb is.
    """
    before = words if verb is None else words[:verb]
    if _FLAG in before:
        at = before.index(_FLAG)
        return [*words[:at], "mcp", "serve", *words[at + 1 :]]
    if verb is None or words[verb] != "mcp" or _VERBS.intersection(words[verb:]) or {"-h", "--help"} & set(words):
        return list(words)
    return [*words[: verb + 1], "serve", *words[verb + 1 :]]


def add_mcp_verbs(add: Adder) -> None:
    """Add `mcp` with its verbs."""
    verbs = add.group("mcp", "let agents use the same sandboxes: an MCP server; `sbx --mcp` starts it")
    serve = verbs("serve", "mcp:serve", "serve one client at standard input and output, until it leaves")
    flag = serve.add_argument
    flag("--toolsets", default="", metavar="LIST", help="core, files, observe, images, links or all (default: all)")
    flag("--tools", default="", metavar="LIST", help="only these tools, and those of --toolsets")
    flag("--http", default="", metavar="ADDR", help="serve over HTTP instead, like 127.0.0.1:8765; loopback only")
    flag("--token-file", default="", metavar="FILE", help="of --http: what clients send (default: made up and told)")
    flag("--read-only", action="store_true", help="only tools that change nothing")
    flag("--ask", action="store_true", help="have each call that would change something wait until you approve it")
    config = verbs("config", "mcp:config", "print what a client's configuration needs, or write it there")
    config.add_argument("--write", action="store_true", help="put it into the client's file; keeps a copy of it")
    doctor = verbs("doctor", "mcp:doctor", "start a server as a client would, and tell how it is")
    for parser in (config, doctor):
        parser.add_argument("--client", default="", metavar="CLIENT", help=_CLIENTS)
        parser.add_argument("--scope", default="", choices=["user", "project"], help="whose file (default: yours)")
    wide(verbs("ls", "mcpclients:ls", "list connected clients, what each asked for last, and what waits for you"))
    for name, help_text in _SAYS.items():
        parser = verbs(name, f"mcpclients:{name}", help_text)
        parser.add_argument("mcp_client", metavar="CLIENT", help="name or process")
    for name, help_text in _ANSWERS.items():
        parser = verbs(name, f"mcpclients:{name}", help_text)
        parser.add_argument("mcp_call", metavar="CALL", help="its number, as `sbx mcp ls` tells it")
