"""`context ls|use|add|rm` and `trust`."""

from __future__ import annotations

import re
from pathlib import Path

from sbxtui.cli import show
from sbxtui.cli.call import Call
from sbxtui.core.errors import Conflict, UsageError
from sbxtui.core.model import Context, ContextKind, ContextName
from sbxtui.core.text import counted, harmless_line
from sbxtui.project import trust as trust_project

_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ENDPOINT = re.compile(r"https?://[^\s/?#]+(?:/[^\s?#]*)?", re.ASCII)


def ls(call: Call) -> int:
    """List contexts; a star marks the one that counts."""
    current = call.services.context.name
    contexts = call.services.contexts.list()
    if call.out.is_json:
        call.out.json([{**_context_json(one, call), "current": one.name == current} for one in contexts])
        return 0
    rows = [
        ("*" if one.name == current else "", one.name, one.kind.value, one.region, one.profile, _isolation(one, call))
        for one in contexts
    ]
    columns = ("", "NAME", "KIND", "REGION", "PROFILE", "ISOLATION")
    call.out.table(columns, rows, cuts=show.CONTEXT_CUTS, is_wide=call.args.wide, names=[one.name for one in contexts])
    return 0


def use(call: Call) -> int:
    """Make a context the one in use."""
    context = call.services.contexts.use(call.args.name, actor=call.services.actor)
    if call.settings.context:
        source = call.settings.sources.get("context", "the settings")
        call.out.note(f"note: {source} names `{call.settings.context}`, which still wins")
    call.out.result({"current": context.name})
    call.out.line(context.name)
    return 0


def add(call: Call) -> int:
    """Add an AWS context, or one for any server that speaks the same API."""
    args = call.args
    call.services.contexts.check_free(args.name)
    region = args.region or call.settings.region
    if not region:
        raise UsageError("a context needs a region", hint=f"sbx context add {args.name} --region us-east-1")
    _check_place(region, args.endpoint_url)
    context = Context(
        name=ContextName(args.name),
        kind=ContextKind.AWS,
        region=region,
        profile=args.profile or call.settings.profile,
        endpoint_url=args.endpoint_url,
    )
    call.services.contexts.add(context, actor=call.services.actor)
    if call.out.is_json:
        call.out.json(_context_json(context, call))
    call.out.line(context.name)
    return 0


def _check_place(region: str, endpoint_url: str) -> None:
    """What nothing can be at is refused now, and not by each verb that looks there."""
    if not _REGION.fullmatch(region):
        raise UsageError(f"`{harmless_line(region, limit=64)}` is no region", hint="write one like us-east-1")
    if endpoint_url and not _ENDPOINT.fullmatch(endpoint_url):
        shown = harmless_line(endpoint_url, limit=100)
        raise UsageError(f"`{shown}` is no endpoint", hint="write it like https://HOST or http://HOST:PORT")


async def rm(call: Call) -> int:
    """Remove a context that no name points into.

    Raises:
        Conflict: Sandboxes of it have names here; nothing was removed.
    """
    services = call.services
    context = services.contexts.get(call.args.name)
    names = [row.name for row in services.registry.list(context.name)]
    if names:
        raise Conflict(
            f"context `{context.name}` has {counted(len(names), 'sandbox', 'sandboxes')}: {', '.join(names[:5])}",
            hint=f"`sbx -c {context.name} rm --all` ends them, `sbx -c {context.name} prune` forgets what is gone",
        )
    if not call.args.dry_run:
        await call.confirm(f"remove context `{context.name}`", consequences=[])
        services.contexts.remove(context.name, actor=services.actor)
    call.out.result({"removed": None if call.args.dry_run else context.name})
    call.out.line(context.name)
    return 0


def trust(call: Call) -> int:
    """Trust a folder's project file as it is now."""
    trusted = trust_project(Path(call.args.folder).absolute(), call.settings.home.trusted_file)
    # The file of the working folder was read, and its notices told, with the settings.
    for notice in set(trusted.notices) - set(call.settings.notices):
        call.out.note(f"note: {notice}")
    if call.out.is_json:
        call.out.json({"trusted": trusted.origin})
    call.out.line(trusted.origin)
    return 0


def _context_json(context: Context, call: Call) -> dict[str, object]:
    return {
        "name": context.name,
        "kind": context.kind.value,
        "region": context.region or None,
        "profile": context.profile or None,
        "account_id": context.account_id or None,
        "endpoint_url": context.endpoint_url or None,
        "isolation": _isolation(context, call) or None,
    }


def _isolation(context: Context, call: Call) -> str:
    return call.services.planes.isolation_words(context)
