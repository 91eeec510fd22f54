"""Tools that copy between this machine and a sandbox, as far as the allowed folders go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from sbxguest.tree import TreeReport
from sbxtui.core.errors import FileMissing, UsageError
from sbxtui.core.model import Registration
from sbxtui.core.text import counted, short_size
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Kind, Param
from sbxtui.mcp_server.reply import Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset

_TELL_EVERY_BYTES = 8 << 20


async def from_host(call: Call) -> Reply:
    """Copy a file or folder of this machine into a sandbox."""
    row = await call.sandbox()
    with call.host_paths.opened(call.args.text("host_path")) as place:
        target = await _inside(call, row, call.args.text("dest"), place.name)
        told = {"host_path": place.shown, "dest": target}
        if call.args.flag("dry_run"):
            return Reply({**told, "copied": False})
        source = f"{place.path}/." if place.is_folder else place.path
        report = await call.services.files.upload(row, source, target, is_recursive=True, on_bytes=_telling(call))
        return Reply({**told, "copied": True, **_reported(call, report)})


async def to_host(call: Call) -> Reply:
    """Copy a file or folder of a sandbox to this machine."""
    source = call.args.text("src")
    name = PurePosixPath(source).name
    if name in ("", ".."):
        raise UsageError(f"{source} names no file", hint="end the path with the name of what is copied")
    row = await call.sandbox()
    info = await call.services.files.stat(row, source)
    with call.host_paths.target(call.args.text("host_path"), name) as place:
        told = {"src": source, "host_path": place.shown}
        if call.args.flag("dry_run"):
            return Reply({**told, "copied": False, "replaces": place.exists})
        if place.exists and not call.args.flag("overwrite"):
            await call.confirm(f"replace {place.shown} on this machine", [f"what {place.shown} holds now"])
        content = f"{source}/." if info.kind == "dir" else source
        report = await call.services.files.download(
            row, content, place.path, is_recursive=True, on_bytes=_telling(call), follows_links=False
        )
        return Reply({**told, "copied": True, **_reported(call, report)})


async def _inside(call: Call, row: Registration, dest: str, name: str) -> str:
    """The path in the sandbox: an existing folder takes it in."""
    if not dest:
        return name
    try:
        info = await call.services.files.stat(row, dest)
    except FileMissing:
        return f"{dest}{name}" if dest.endswith("/") else dest
    return str(PurePosixPath(dest, name)) if info.kind == "dir" else dest


def _telling(call: Call) -> Callable[[int], None]:
    tell, total, told = call.telling(), 0, 0

    def count(size_bytes: int) -> None:
        nonlocal total, told
        total += size_bytes
        if total - told >= _TELL_EVERY_BYTES:
            told = total
            tell(f"{short_size(total)} copied")

    return count


def _reported(call: Call, report: TreeReport | None) -> dict[str, object]:
    if report is None:
        return {"files": 1}
    if report.problem_count:
        call.warnings.append(f"{counted(report.problem_count, 'entry', 'entries')} left out")
    problems = [{"path": one.path, "code": one.code} for one in report.problems]
    return {"files": report.files, "folders": report.folders, "links": report.links, "left_out": problems}


_HOST_PATH = Param("host_path", help="Path on this machine, below an allowed folder", is_required=True)

TOOLS = (
    Tool(
        "sandbox_fs_copy_from_host",
        Toolset.FILES,
        Effect.SETS,
        "Copy a file or folder of this machine into a sandbox.",
        from_host,
        (
            common.NAME,
            _HOST_PATH,
            Param("dest", help="Where to; an existing folder takes it in", aliases=("guest_path", "guestPath")),
            common.DRY_RUN,
        ),
    ),
    Tool(
        "sandbox_fs_copy_to_host",
        Toolset.FILES,
        Effect.DESTROYS,
        "Copy a file or folder of a sandbox to this machine.",
        to_host,
        (
            common.NAME,
            Param("src", help="Path in the sandbox", is_required=True, aliases=("guest_path", "guestPath")),
            _HOST_PATH,
            Param("overwrite", Kind.FLAG, "Replace what is there"),
            common.CONFIRM,
            common.DRY_RUN,
        ),
    ),
)
