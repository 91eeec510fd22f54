"""Texts both sides agree on, kept so that two edits of one can be merged: for links that merge by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sbxguest.tree.entry import new_digest
from sbxtui.services.sync.compare import MAX_TEXT_BYTES
from sbxtui.services.sync.folder import SmallFiles
from sbxtui.services.sync.model import Kind, Path
from sbxtui.services.sync.pair import Pair

_AT_ONCE_BYTES = 8 * 1024 * 1024


async def keep_texts(pair: Pair, paths: Iterable[Path] | None = None) -> None:
    """Keep what both sides have at these paths, or everywhere, as far as it is text and not kept already."""
    await asyncio.to_thread(_keep, pair, list(pair.base if paths is None else paths))


def _keep(pair: Pair, paths: list[Path]) -> None:
    known = pair.ancestors.kept_texts() if paths else set()
    files = SmallFiles(pair.folder)
    held: dict[bytes, bytes] = {}
    held_bytes = 0
    try:
        for path in paths:
            state = pair.base.get(path)
            if state is None or state.kind is not Kind.FILE or state.size_bytes > MAX_TEXT_BYTES:
                continue
            digest = state.content
            if digest in known or digest in held or pair.local.states.get(path) != state:
                continue
            content = files.read(path, state.size_bytes)
            # It may be another one by now.
            if content and b"\0" not in content and new_digest(content).digest() == digest:
                held[digest] = content
                held_bytes += len(content)
            if held_bytes > _AT_ONCE_BYTES:
                pair.ancestors.keep_texts(held)
                held, held_bytes = {}, 0
    finally:
        files.close()
    if held:
        pair.ancestors.keep_texts(held)
