"""What a tar header says, read with suspicion."""

from __future__ import annotations

import os
import tarfile

from sbxguest.tree.report import TreeError, shown

BLOCK_BYTES = 512
_MAX_NAME_BYTES = 4095


def parse_head(block: bytes) -> tarfile.TarInfo | None:
    """The member of a 512-byte header block; None for the zeros that end an archive.

    Raises:
        TreeError: It is no header, or says what no packer would.
    """
    if not any(block):
        return None
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as exc:
        raise TreeError("bad_archive", f"this is no tar archive: {exc}") from exc
    if member.size < 0:
        raise TreeError("bad_archive", "a member has a negative size")
    if member.type == tarfile.GNUTYPE_SPARSE:
        raise TreeError("bad_archive", "sparse members are not supported")
    return member


def apply_records(member: tarfile.TarInfo, records: dict[str, str]) -> int:
    """Let the records before a member overrule its header; returns its time in nanoseconds.

    Raises:
        TreeError: A number is none, or the member is sparse.
    """
    member.name = records.get("path", member.name)
    member.linkname = records.get("linkpath", member.linkname)
    if any(key.startswith("GNU.sparse") for key in records):
        raise TreeError("bad_archive", "sparse members are not supported")
    size = records.get("size", str(member.size))
    if not (size.isascii() and size.isdigit() and len(size) <= 18):
        raise TreeError("bad_archive", "a pax record holds a bad size")
    member.size = int(size)
    return _mtime_ns(records.get("mtime", str(int(member.mtime))))


def _mtime_ns(text: str) -> int:
    """Decimal seconds, exactly; times before 1970 and beyond the file systems' reach become the nearest possible."""
    if text.startswith("-"):
        return 0
    whole, _, fraction = text.partition(".")
    if not (whole + fraction).isascii() or not (whole + (fraction or "0")).isdigit() or len(whole) > 20:
        raise TreeError("bad_archive", "a pax record holds a bad time")
    return min(int(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, "0")), 2**62)


def safe_parts(name: str) -> tuple[str, ...]:
    """The components of a member's name.

    Raises:
        TreeError: It is absolute, climbs, or is no name.
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise TreeError("unsafe_path", f"{shown(name[:200])}: leads outside the folder")
    if len(os.fsencode(name)) > _MAX_NAME_BYTES:
        raise TreeError("unsafe_path", f"{shown(name[:200])}…: is longer than {_MAX_NAME_BYTES} bytes")
    return parts


def stays_inside(target: str, *, depth: int) -> bool:
    """Whether a link at `depth` folders below the root stays in the tree, whatever other links of the tree say.

    `..` counts only in front, where it climbs real folders. Behind a name it would climb from wherever that name,
    itself perhaps a link, leads; such targets are refused.
    """
    if not target or target.startswith("/") or "\0" in target:
        return False
    parts = [part for part in target.split("/") if part not in ("", ".")]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    return climbs <= depth and ".." not in parts[climbs:]


def pax_pairs(record: bytes) -> dict[str, str]:
    """The `LENGTH key=value` lines of a pax record; values that are not UTF-8 keep their bytes.

    Raises:
        TreeError: It is damaged.
    """
    pairs: dict[str, str] = {}
    position = 0
    while position < len(record):
        space = record.find(b" ", position, position + 12)
        digits = record[position:space] if space > 0 else b""
        length = int(digits) if digits.isdigit() else 0
        line = record[space + 1 : position + length]
        key, equals, value = line[:-1].partition(b"=")
        if not equals or not line.endswith(b"\n") or position + length > len(record):
            raise TreeError("bad_archive", "a pax record is damaged")
        pairs[os.fsdecode(key)] = os.fsdecode(value)
        position += length
    return pairs
