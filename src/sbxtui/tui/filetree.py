"""The tree of a sandbox's files as far as it was listed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sbxtui.core.model import FileInfo
from sbxtui.core.text import harmless_line, short_size


@dataclass(frozen=True, slots=True)
class Node:
    """One line of the tree; `info` is None for a line that only says something about its folder."""

    path: str
    depth: int
    info: FileInfo | None
    words: str = ""
    is_open: bool = False


class FileTree:
    """Folders that were listed, and which of them are open. Paths are absolute."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._entries: dict[str, tuple[FileInfo, ...]] = {}
        self._cut: set[str] = set()
        self._problems: dict[str, str] = {}
        self._open: set[str] = {root}

    @property
    def is_listed(self) -> bool:
        """Whether its root was listed, or could not be."""
        return self.root in self._entries or self.root in self._problems

    def is_known(self, path: str) -> bool:
        """Whether a folder was listed."""
        return path in self._entries

    def take(self, folder: str, entries: Sequence[FileInfo], *, is_truncated: bool) -> None:
        """Keep what a folder holds: folders first, then by name."""
        self._problems.pop(folder, None)
        self._entries[folder] = tuple(sorted(entries, key=lambda one: (one.kind != "dir", one.path)))
        (self._cut.add if is_truncated else self._cut.discard)(folder)

    def fail(self, folder: str, words: str) -> None:
        """Keep why a folder could not be listed."""
        self._problems[folder] = words

    def go_up(self) -> None:
        """Make the folder above the root the root."""
        self.root = str(PurePosixPath(self.root).parent)
        self._open.add(self.root)

    def set_open(self, path: str, *, is_open: bool) -> None:
        """Open or close a folder."""
        (self._open.add if is_open else self._open.discard)(path)

    def is_open(self, path: str) -> bool:
        """Whether a folder is open."""
        return path in self._open

    def nodes(self) -> list[Node]:
        """What is on screen, top first."""
        return list(self._below(self.root, 0))

    def open_folders(self) -> list[str]:
        """Folders whose content is on screen, so that they can be listed anew."""
        shown = [node.path for node in self.nodes() if node.info is not None and node.is_open]
        return [self.root, *(path for path in shown if path in self._entries)]

    def _below(self, folder: str, depth: int) -> Iterator[Node]:
        if words := self._problems.get(folder, ""):
            yield Node(folder, depth, None, words)
        entries = self._entries.get(folder)
        if entries is None:
            if not words:
                yield Node(folder, depth, None, "listing …")
            return
        for entry in entries:
            path = str(PurePosixPath(folder) / PurePosixPath(entry.path).name)
            is_open = entry.kind == "dir" and path in self._open
            yield Node(path, depth, entry, is_open=is_open)
            if is_open:
                yield from self._below(path, depth + 1)
        if not entries and not words:
            yield Node(folder, depth, None, "empty")
        if folder in self._cut:
            yield Node(folder, depth, None, f"more than {len(entries):,} entries: `sbx fs ls` has the rest")


def node_cells(node: Node, width: int) -> tuple[tuple[str, str], ...]:
    """A node as texts with tones, `width` cells wide at most: sign, name, size."""
    indent = "  " * node.depth
    if node.info is None:
        return ((f"{indent}  {harmless_line(node.words)}", "muted"),)
    info, name = node.info, harmless_line(PurePosixPath(node.path).name, limit=200)
    sign = "▾ " if node.is_open else "▸ " if info.kind == "dir" else "  "
    target = f" → {harmless_line(info.target, limit=100)}" if info.kind == "link" else ""
    size = short_size(info.size_bytes) if info.kind == "file" else {"dir": "", "link": "link"}.get(info.kind, "special")
    room = max(4, width - len(indent) - 2 - 11)
    text = name + target
    shown = text if len(text) <= room else text[: room - 1] + "…"
    tone = {"dir": "key", "link": "calm", "file": ""}.get(info.kind, "warn")
    return ((indent + sign, "muted"), (shown, tone), (" " * max(1, room - len(shown)), ""), (f"{size:>9}", "muted"))
