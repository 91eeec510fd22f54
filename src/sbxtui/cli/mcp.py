"""`mcp`: the face of agents."""

from __future__ import annotations

from sbxtui.cli.call import Call


def serve(call: Call) -> int:
    """Serve one client at standard input and output."""
    from sbxtui.mcp_server.options import Options
    from sbxtui.mcp_server.serve import serve_stdio

    args = call.args
    options = Options(
        context=args.context,
        toolsets=_listed(args.toolsets),
        tools=_listed(args.tools),
        is_read_only=args.read_only,
    )
    return serve_stdio(call.settings, options)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(",", " ").split() if word)
