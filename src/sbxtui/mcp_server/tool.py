"""What a tool is, as one row: its name, its arguments, what it may do, and the function that does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Param
from sbxtui.mcp_server.reply import Reply

Run = Callable[[Call], Awaitable[Reply]]


class Toolset(StrEnum):
    """Groups of tools a client may be given; CORE is what an agent needs day by day."""

    CORE = "core"
    FILES = "files"
    OBSERVE = "observe"
    IMAGES = "images"
    LINKS = "links"


class Effect(StrEnum):
    """What a tool does to the world: nothing, adds to it, sets it to what was asked, or takes something away."""

    READS = "reads"
    ADDS = "adds"
    SETS = "sets"
    DESTROYS = "destroys"


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `reaches_out`: what it runs may reach the network."""

    name: str
    toolset: Toolset
    effect: Effect
    help: str
    run: Run
    params: tuple[Param, ...] = ()
    reaches_out: bool = False
