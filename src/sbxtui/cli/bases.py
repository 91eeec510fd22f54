"""`local base add|ls|rm`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from sbxtui.cli.call import Call
from sbxtui.cli.fitting import Cut
from sbxtui.core.errors import NotFound
from sbxtui.core.text import short_size
from sbxtui.services.bases import Bases

_COLUMNS = ("NAME", "SIZE", "MADE", "FROM")
_CUTS = (Cut("FROM", 16), Cut("MADE", 0), Cut("FROM", 0), Cut("NAME", 16))


async def add(call: Call) -> int:
    """Make a folder or a tar known as a base."""
    call.out.progress(f"copying {call.args.source}")
    base = await Bases(call.services.planes).add(call.args.name, Path(call.args.source))
    call.out.result(dataclasses.asdict(base))
    call.out.line(base.name)
    if base.python.startswith("none"):
        call.out.note(f"warning: nothing can be built from it yet: {base.python.removeprefix('none: ')}")
    return 0


async def ls(call: Call) -> int:
    """List bases."""
    found = await Bases(call.services.planes).list()
    if call.out.is_json:
        call.out.json([dataclasses.asdict(one) for one in found])
        return 0
    if not found:
        call.out.note("no bases but sbx-base, which is this machine's own: `sbx local base add NAME FOLDER`")
        return 0
    rows = [
        (one.name, short_size(one.size_bytes), f"{one.made_at.astimezone():%Y-%m-%d %H:%M}", one.source)
        for one in found
    ]
    call.out.table(_COLUMNS, rows, cuts=_CUTS, is_wide=call.args.wide, names=[one.name for one in found])
    return 0


async def rm(call: Call) -> int:
    """Forget a base and delete its copy."""
    bases, name = Bases(call.services.planes), call.args.name
    if name not in [one.name for one in await bases.list()]:
        raise NotFound(f"there is no base `{name}`", hint="`sbx local base ls` lists them")
    if not call.args.dry_run:
        await call.confirm(f"delete the base `{name}`", consequences=["its copy; what it was made from stays"])
        await bases.remove(name)
    call.out.result({"name": name})
    call.out.line(name)
    call.out.note(f"{name}: {'would be deleted' if call.args.dry_run else 'deleted'}")
    return 0
