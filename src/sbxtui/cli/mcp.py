"""`mcp`: the face of agents, and how clients are told of it."""

from __future__ import annotations

import secrets
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.cli.output import tell
from sbxtui.core.errors import UsageError
from sbxtui.core.paths import at_home
from sbxtui.settings import Home, locate_home

if TYPE_CHECKING:
    from sbxtui.mcp_server.config import Client, Launch
    from sbxtui.mcp_server.options import Options


def serve(call: Call) -> int | Coroutine[Any, Any, int]:
    """Serve one client at standard input and output, or several over HTTP."""
    from sbxtui.mcp_server.options import Options
    from sbxtui.mcp_server.serve import serve_stdio

    args = call.args
    is_chosen = args.toolsets or args.tools
    options = Options(
        context=args.context,
        toolsets=_listed(args.toolsets if is_chosen else call.settings.mcp_toolsets),
        tools=_listed(args.tools),
        is_read_only=args.read_only,
        asks=args.ask,
    )
    if args.http:
        return _serve_http(call, options)
    if args.token_file:
        raise UsageError("--token-file is of --http", hint="a client that starts us needs no token")
    return serve_stdio(call.settings, options)


async def _serve_http(call: Call, options: Options) -> int:
    from sbxtui.mcp_server.http import listening, serve_http, url_of

    call.out.ends_by_interrupt = True
    file = call.args.token_file
    token = Path(file).read_text("ascii").strip() if file else secrets.token_urlsafe(32)
    if not token:
        raise UsageError(f"{file} holds no token", hint="put one line of letters and digits into it")
    listener = listening(call.args.http)
    call.out.line(url_of(listener))
    call.out.result({"url": url_of(listener)})
    if not file:
        tell(f"clients send `Authorization: Bearer {token}`\n")
    await serve_http(call.settings, options, listener, token)
    return 0


def config(call: Call) -> int:
    """Print what a client's configuration needs, or write it there."""
    from sbxtui.mcp_server.config import snippet, write

    client = _client(call)
    launch = _launch(call, client)
    if not call.args.write:
        call.out.line(snippet(client, launch).rstrip("\n"))
        call.out.result({"client": client.name, **launch.plain()})
        if client.user_file or client.project_file:
            call.out.note(f"for {client.file(_scope(call, client), Path.cwd())}; --write puts it there")
        return 0
    file = client.file(_scope(call, client), Path.cwd())
    backup = write(client, file, launch)
    call.out.line(str(file))
    call.out.result({"client": client.name, "file": str(file), "backup": str(backup) if backup else None})
    if backup is not None:
        call.out.note(f"as it was: {backup}")
    call.out.note("restart the client; `sbx mcp doctor` starts the server as it would")
    return 0


async def doctor(call: Call) -> int:
    """Start a server as a client would, and tell how it is."""
    from sbxtui.mcp_server.config import configured
    from sbxtui.mcp_server.selftest import examine

    client = _client(call)
    if call.args.client:
        launch = configured(client, client.file(_scope(call, client), Path.cwd()))
    else:
        launch = _launch(call, client)
    return show.checks(call.out, await examine(launch, at_home("~"), call.out.progress))


def _client(call: Call) -> Client:
    from sbxtui.mcp_server.config import CLIENTS

    name = call.args.client or "generic"
    if name not in CLIENTS:
        raise UsageError(f"sbx knows no client `{name}`", hint=f"one of {', '.join(CLIENTS)}; generic fits most")
    return CLIENTS[name]


def _scope(call: Call, client: Client) -> str:
    """The scope that was asked for, else this person's, where the client has such a file."""
    return str(call.args.scope) or ("user" if client.user_file else "project")


def _launch(call: Call, client: Client) -> Launch:
    from sbxtui.mcp_server.config import Launch, own_command

    command, *words = own_command()
    context = ("--context", call.args.context) if call.args.context else ()
    home = call.settings.home
    # A home of one's own is named by the environment, which a client does not pass on.
    env = {} if home == _usual_home() else {"SBX_HOME": str(home.config_dir.parent)}
    return Launch(command, (*words, "--mcp", *context, *client.args), env)


def _usual_home() -> Home | None:
    try:
        return locate_home({})
    except UsageError:
        return None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())
