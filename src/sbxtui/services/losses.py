"""What removing a sandbox would lose, in words."""

from __future__ import annotations

from collections.abc import Sequence

from sbxtui.core.model import Registration
from sbxtui.core.text import counted
from sbxtui.store.links import Link, Links


def loss_words(row: Registration, workdir: str, links: Links) -> str:
    """What goes with a sandbox, on one line; asks nobody."""
    loss = f"{row.name}: its memory, its files in {workdir}, its running jobs"
    link = links.find(row.context, "sync", row.id)
    changes = _changes(link, "guest_changes") if link is not None else 0
    if not changes:
        return loss
    return f"{loss}, {counted(changes, 'change')} that nobody took over (`sbx sync pull {row.name}`)"


def link_losses(links: Sequence[Link]) -> list[str]:
    """What ends with the links of one sandbox, and what of its work is lost with them, a line each."""
    lines = []
    for link in links:
        if link.kind != "sync":
            continue
        if changes := _changes(link, "guest_changes"):
            lines.append(f"loses {counted(changes, 'change')}: `sbx sync pull {link.sandbox}` takes them")
        if pending := _changes(link, "pending"):
            lines.append(f"ends its sync before {counted(pending, 'change')} of here got there")
    if ports := [link.kind.partition(":")[2] for link in links if link.kind != "sync" and link.is_wanted]:
        lines.append(f"ends what is forwarded to {', '.join(f':{port}' for port in ports if port)}")
    return lines


def _changes(link: Link, which: str) -> int:
    said = link.status.get(which)
    return said if isinstance(said, int) else 0
