"""What removing a sandbox would lose, in words."""

from __future__ import annotations

from sbxtui.core.model import Registration
from sbxtui.core.text import counted
from sbxtui.store.links import Links


def loss_words(row: Registration, workdir: str, links: Links) -> str:
    """What goes with a sandbox, on one line; asks nobody."""
    loss = f"{row.name}: its memory, its files in {workdir}, its running jobs"
    link = links.find(row.context, "sync", row.id)
    changes = int(link.status.get("guest_changes", 0)) if link is not None else 0
    if not changes:
        return loss
    return f"{loss}, {counted(changes, 'change')} that nobody took over (`sbx sync pull {row.name}`)"
