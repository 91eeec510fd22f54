"""What was agreed on, as far as it can be one folder's."""

from __future__ import annotations

from collections.abc import Mapping

from sbxtui.services.sync.model import Path, parent_of, tree_key
from sbxtui.store.ancestors import Agreed


def standing(base: Mapping[Path, Agreed]) -> Mapping[Path, Agreed]:
    """Without what stands below what is agreed on no more: no folder holds that."""
    if all(not (above := parent_of(path)) or _is_folder(base.get(above)) for path in base):
        return base
    kept: dict[Path, Agreed] = {}
    for path in sorted(base, key=tree_key):
        above = parent_of(path)
        if not above or _is_folder(kept.get(above)):
            kept[path] = base[path]
    return kept


def _is_folder(agreed: Agreed | None) -> bool:
    return agreed is not None and agreed.guest.is_dir
