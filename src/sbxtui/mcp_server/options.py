"""What whoever starts a server chooses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """Which context is acted on, and which tools are offered; empty means the one that counts, and all.

    `is_read_only` leaves out every tool that changes anything; `asks` has each change wait for a person.
    """

    context: str = ""
    toolsets: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    is_read_only: bool = False
    asks: bool = False
