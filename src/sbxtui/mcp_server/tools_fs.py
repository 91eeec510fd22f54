"""Tools for files of a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import PurePosixPath

from sbxtui.core.documents import file_json
from sbxtui.core.errors import FileMissing, UsageError
from sbxtui.core.text import counted
from sbxtui.mcp_server import common
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.clip import Clip
from sbxtui.mcp_server.paging import CURSOR, LIMIT, page
from sbxtui.mcp_server.params import Kind, Param, rare
from sbxtui.mcp_server.reply import Image, Reply
from sbxtui.mcp_server.tool import Effect, Tool, Toolset
from sbxtui.mcp_server.tools_exec import decoded, limit_of

_PICTURES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
# As base64 it must fit into a frame.
_PICTURE_BYTES = 600_000
_BASE64 = "base64"


async def read(call: Call) -> Reply:
    """A file, or a part of one; pictures come as pictures."""
    args, path = call.args, call.args.text("path")
    row = await call.sandbox()
    mime_type = _PICTURES.get(PurePosixPath(path).suffix.lower(), "")
    is_picture = bool(mime_type) and "encoding" not in args and "offset" not in args
    limit = _PICTURE_BYTES if is_picture else min(limit_of(call), call.settings.mcp_max_output_bytes)
    start = args.whole("offset")
    data, info = await call.services.files.peek(row, path, limit, start=start)
    told = {**file_json(info), "path": path}
    if is_picture and len(data) == info.size_bytes:
        return Reply({**told, "mime_type": mime_type}, images=[Image(data, mime_type)])
    is_base64 = args.text("encoding") == _BASE64
    content = Clip.of(data, limit, total_bytes=max(0, info.size_bytes - start), is_base64=is_base64)
    warnings = [] if is_base64 or _is_text(data) else ["it is no UTF-8: encoding=base64 gives its bytes"]
    encoding = _BASE64 if is_base64 else "text"
    return Reply(
        {**told, "offset": start, "encoding": encoding, "content": content, "untrusted": True},
        limit_bytes=limit,
        warnings=warnings,
    )


async def write(call: Call) -> Reply:
    """Replace a file, whole or not at all."""
    args, path = call.args, call.args.text("path")
    row = await call.sandbox()
    text = args.text("content")
    data = decoded("content", text) if args.text("encoding") == _BASE64 else text.encode("utf-8", "replace")
    mode = _mode_of(args.text("mode")) if "mode" in args else None
    size_bytes = await call.services.files.write(
        row, path, _once(data), mode=mode, has_parents=True, if_sha256=args.text("if_sha256")
    )
    return Reply({"path": path, "size_bytes": size_bytes})


async def list_(call: Call) -> Reply:
    """What is in a folder."""
    path = call.args.text("path", ".")
    row = await call.sandbox()
    entries, is_cut = await call.services.files.list(row, path)
    part, more = page(call, entries)
    if is_cut:
        call.warnings.append(f"the folder has more than {counted(len(entries), 'entry', 'entries')}")
    return Reply({"path": path, "entries": [file_json(one) for one in part], **more, "untrusted": True})


async def mkdir(call: Call) -> Reply:
    """Make a folder and those above it."""
    path = call.args.text("path")
    await call.services.files.make_folder(await call.sandbox(), path)
    return Reply({"path": path})


async def remove(call: Call) -> Reply:
    """Remove a file, or a folder with all that is in it."""
    args, path = call.args, call.args.text("path")
    row = await call.sandbox()
    info = await call.services.files.stat(row, path)
    is_folder = info.kind == "dir"
    if is_folder and not args.flag("recursive"):
        raise UsageError(f"{path} is a folder", hint="send recursive=true to remove it with all that is in it")
    if args.flag("dry_run"):
        return Reply({"path": path, "removed": False, "would_remove": file_json(info)})
    if is_folder:
        await call.confirm(f"remove the folder {path} of `{row.name}`", [f"all that is in {path}"])
    await call.services.files.remove(row, path, is_recursive=is_folder)
    return Reply({"path": path, "removed": True})


async def copy(call: Call) -> Reply:
    """Copy inside the sandbox."""
    source, target = call.args.text("src"), call.args.text("dst")
    left_out = await call.services.files.copy(await call.sandbox(), source, target, is_recursive=True)
    if left_out:
        call.warnings.append("special files were left out")
    return Reply({"src": source, "dst": target, "left_out": list(left_out)})


async def rename(call: Call) -> Reply:
    """Move inside the sandbox."""
    source, target = call.args.text("src"), call.args.text("dst")
    await call.services.files.move(await call.sandbox(), source, target)
    return Reply({"src": source, "dst": target})


async def stat(call: Call) -> Reply:
    """What is at a path."""
    path = call.args.text("path")
    return Reply(file_json(await call.services.files.stat(await call.sandbox(), path)))


async def exists(call: Call) -> Reply:
    """Whether anything is at a path."""
    path = call.args.text("path")
    try:
        info = await call.services.files.stat(await call.sandbox(), path)
    except FileMissing:
        return Reply({"path": path, "exists": False})
    return Reply({"path": path, "exists": True, "kind": info.kind})


def _is_text(data: bytes) -> bool:
    try:
        data[: max(0, len(data) - 3)].decode("utf-8")
    except UnicodeDecodeError as exc:
        # A character that the limit cut in two.
        return exc.reason == "unexpected end of data" and len(data) - exc.start < 8
    return True


def _mode_of(text: str) -> int:
    try:
        mode = int(text, 8)
    except ValueError as exc:
        raise UsageError(f"`mode` cannot be `{text}`", hint="octal permission bits, like 644 or 0755") from exc
    if not 0 <= mode <= 0o777:
        raise UsageError(f"`mode` cannot be `{text}`", hint="permission bits only, like 644 or 0755")
    return mode


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


_PATH = Param("path", help="Absolute, or from the working folder on", is_required=True)
_SRC = Param("src", help="Path to take", is_required=True, aliases=("from",))
_DST = Param("dst", help="Path to make; an existing folder takes it in", is_required=True, aliases=("to",))
_ENCODING = Param("encoding", help="text if left out", choices=("text", _BASE64))

TOOLS = (
    Tool(
        "sandbox_fs_read",
        Toolset.CORE,
        Effect.READS,
        "Read a file of a sandbox from offset on; a PNG or JPEG without encoding comes as a picture.",
        read,
        (
            common.NAME,
            _PATH,
            _ENCODING,
            Param("offset", Kind.WHOLE, "Begin at this byte", least=0),
            common.MAX_BYTES,
        ),
    ),
    Tool(
        "sandbox_fs_write",
        Toolset.CORE,
        Effect.SETS,
        "Replace a file of a sandbox, whole or not at all; folders above it are made.",
        write,
        (
            common.NAME,
            _PATH,
            Param("content", help="What it shall hold", is_required=True),
            _ENCODING,
            *rare(
                Param("mode", help="Octal permission bits"),
                Param("if_sha256", help="Only if it has this digest now; none: only if it is not there"),
            ),
        ),
    ),
    Tool(
        "sandbox_fs_list",
        Toolset.CORE,
        Effect.READS,
        "List a folder of a sandbox.",
        list_,
        (common.NAME, Param("path", help="The working folder if left out"), LIMIT, CURSOR),
    ),
    Tool(
        "sandbox_fs_mkdir", Toolset.FILES, Effect.SETS, "Make a folder and those above it.", mkdir, (common.NAME, _PATH)
    ),
    Tool(
        "sandbox_fs_remove",
        Toolset.FILES,
        Effect.DESTROYS,
        "Remove a file, or with recursive a folder.",
        remove,
        (
            common.NAME,
            _PATH,
            Param("recursive", Kind.FLAG, "A folder with all that is in it"),
            common.CONFIRM,
            common.DRY_RUN,
        ),
    ),
    Tool(
        "sandbox_fs_copy",
        Toolset.FILES,
        Effect.SETS,
        "Copy a file or folder inside a sandbox.",
        copy,
        (common.NAME, _SRC, _DST),
    ),
    Tool(
        "sandbox_fs_rename",
        Toolset.FILES,
        Effect.SETS,
        "Move a file or folder inside a sandbox.",
        rename,
        (common.NAME, _SRC, _DST),
    ),
    Tool(
        "sandbox_fs_stat",
        Toolset.FILES,
        Effect.READS,
        "Kind, size, mode and time of a path.",
        stat,
        (common.NAME, _PATH),
    ),
    Tool(
        "sandbox_fs_exists", Toolset.FILES, Effect.READS, "Whether anything is at a path.", exists, (common.NAME, _PATH)
    ),
)
