"""`cp` and `fs`."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence

from sbxguest.tree import TreeReport
from sbxtui.cli.call import Call
from sbxtui.cli.fitting import Cut
from sbxtui.cli.stdin import read_stdin
from sbxtui.core.documents import file_json
from sbxtui.core.errors import Incomplete, SbxError, Unavailable, UsageError
from sbxtui.core.model import FileInfo
from sbxtui.core.text import counted, short_size

_REMOTE = re.compile(r"(?P<sandbox>[A-Za-z0-9][A-Za-z0-9-]*):(?P<path>.*)", re.DOTALL)
_SHOW_EVERY_S = 0.2
_CUTS = (Cut("NAME", 24), Cut("MODIFIED", 0), Cut("MODE", 0), Cut("NAME", 8))


async def copy(call: Call) -> int:
    """Copy between this machine and a sandbox."""
    source, target = call.args.source, call.args.target
    if "-" in (source, target):
        raise UsageError("`cp` copies files, not streams", hint="`sbx fs write` takes our stdin, `sbx fs cat` prints")
    from_remote, to_remote = _REMOTE.fullmatch(source), _REMOTE.fullmatch(target)
    if bool(from_remote) == bool(to_remote):
        raise UsageError(
            "exactly one side of `cp` is in a sandbox",
            hint="write it SANDBOX:PATH, and a local path with a colon as ./a:b",
        )
    files, recursive = call.services.files, call.args.recursive
    progress = _progress(call)
    if to_remote:
        row = await call.services.sandboxes.find(to_remote["sandbox"])
        report = await files.upload(row, source, to_remote["path"], is_recursive=recursive, on_bytes=progress)
    else:
        assert from_remote is not None, "one side is remote"
        row = await call.services.sandboxes.find(from_remote["sandbox"])
        report = await files.download(row, from_remote["path"], target, is_recursive=recursive, on_bytes=progress)
    return _finish_copy(call, report)


async def fs_ls(call: Call) -> int:
    """List a folder."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    entries, is_truncated = await call.services.files.list(row, call.args.path)
    if call.out.is_json:
        call.out.json([file_json(one) for one in entries])
    _table(call, entries)
    if is_truncated:
        call.out.note(f"note: only the first {len(entries)} entries are shown")
    return 0


async def fs_cat(call: Call) -> int:
    """Print files, byte by byte as they are."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    return await _each(call, lambda path: call.services.files.read(row, path, call.out.raw))


async def fs_stat(call: Call) -> int:
    """Tell size, mode and times."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    infos: list[FileInfo] = []

    async def look(path: str) -> None:
        infos.append(await call.services.files.stat(row, path))

    code = await _each(call, look)
    if call.out.is_json:
        call.out.json([file_json(one) for one in infos])
    elif infos:
        _table(call, infos)
    return code


async def fs_mkdir(call: Call) -> int:
    """Make folders and their parents."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    return await _change_each(call, lambda path: call.services.files.make_folder(row, path))


async def fs_rm(call: Call) -> int:
    """Remove files."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    is_recursive = call.args.recursive
    return await _change_each(call, lambda path: call.services.files.remove(row, path, is_recursive=is_recursive))


async def fs_mv(call: Call) -> int:
    """Move inside the sandbox."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    await call.services.files.move(row, call.args.source, call.args.target)
    call.out.result({"source": call.args.source, "target": call.args.target})
    return 0


async def fs_cp(call: Call) -> int:
    """Copy inside the sandbox."""
    args = call.args
    row = await call.services.sandboxes.find(args.sandbox)
    left_out = await call.services.files.copy(row, args.source, args.target, is_recursive=args.recursive)
    call.out.result({"source": args.source, "target": args.target, "left_out": list(left_out)})
    if left_out:
        raise Incomplete("special files were left out", details={"left_out": list(left_out)})
    return 0


async def fs_write(call: Call) -> int:
    """Write our stdin to a file."""
    row = await call.services.sandboxes.find(call.args.sandbox)
    size_bytes = await call.services.files.write(row, call.args.path, read_stdin())
    if call.out.is_json:
        call.out.json({"path": call.args.path, "size_bytes": size_bytes})
    return 0


async def _change_each(call: Call, act: Callable[[str], Awaitable[object]]) -> int:
    done: list[str] = []

    async def change(path: str) -> None:
        await act(path)
        done.append(path)

    code = await _each(call, change)
    call.out.result({"paths": done})
    return code


async def _each(call: Call, act: Callable[[str], Awaitable[object]]) -> int:
    """Do it with every path, as `cat` and `rm` do: one that fails is told, and holds up no other.

    Returns:
        The exit code: that of the first failure, or 0.

    Raises:
        SbxError: The sandbox cannot be asked at all.
    """
    code = 0
    for path in call.args.paths:
        try:
            await act(path)
        except SbxError as exc:
            # What the guest itself said is about this path; anything else would meet the next one, too.
            if "guest_code" not in exc.details or isinstance(exc, Unavailable):
                raise
            call.out.error(exc)
            code = code or exc.exit_code
    return code


def _progress(call: Call) -> Callable[[int], None]:
    """Count bytes and show them now and then where somebody watches."""
    total, shown_at = 0, time.monotonic()

    def count(size_bytes: int) -> None:
        nonlocal total, shown_at
        total += size_bytes
        if time.monotonic() - shown_at >= _SHOW_EVERY_S:
            shown_at = time.monotonic()
            call.out.progress(f"{short_size(total)} copied")

    return count


def _finish_copy(call: Call, report: TreeReport | None) -> int:
    if report is None:
        call.out.result({"files": 1, "folders": 0, "links": 0, "problems": []})
        return 0
    problems = [{"path": one.path, "code": one.code} for one in report.problems]
    if call.out.is_json:
        call.out.json({"files": report.files, "folders": report.folders, "links": report.links, "problems": problems})
    call.out.note(", ".join(counted(getattr(report, f"{kind}s"), kind) for kind in ("file", "folder", "link")))
    if report.problem_count:
        for one in problems:
            call.out.note(f"  left out: {one['path']} ({one['code']})")
        raise Incomplete(
            f"left out: {counted(report.problem_count, 'entry', 'entries')}", details={"problems": problems}
        )
    return 0


def _table(call: Call, infos: Sequence[FileInfo]) -> None:
    columns, rows = ("MODE", "SIZE", "MODIFIED", "NAME"), [_file_row(one) for one in infos]
    call.out.table(
        columns, rows, cuts=_CUTS, is_wide=call.args.wide, names=[one.path for one in infos], empty="an empty folder"
    )


def _file_row(info: FileInfo) -> tuple[str, ...]:
    letter = {"dir": "d", "link": "l", "file": "-"}.get(info.kind, "?")
    name = f"{info.path} -> {info.target}" if info.target else info.path
    return f"{letter}{info.mode:04o}", str(info.size_bytes), f"{info.modified_at.astimezone():%Y-%m-%d %H:%M:%S}", name
