"""What a tool is, as one row: its name, its arguments, what it may do, and the function that does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.params import Args, Param
from sbxtui.mcp_server.reply import Reply

Run = Callable[[Call], Awaitable[Reply]]


class Toolset(StrEnum):
    """Groups of tools a client may be given; CORE is what an agent needs day by day."""

    CORE = "core"
    FILES = "files"
    OBSERVE = "observe"
    IMAGES = "images"
    LINKS = "links"
    COPIES = "copies"
    ONCE = "once"


class Effect(StrEnum):
    """What a tool does to the world: nothing, adds to it, sets it to what was asked, or takes something away."""

    READS = "reads"
    ADDS = "adds"
    SETS = "sets"
    DESTROYS = "destroys"


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        reaches_out: What it runs may reach the network.
        looks: Values of its argument `action` with which it changes nothing.
        changing: Arguments without which it changes nothing; empty where `looks`, or nothing, tells.
        needs_approval: Each call of it waits for a person, or each that changes something.
        in_turn_by: Argument with the same value of which calls are done one after the other, as they came.
    """

    name: str
    toolset: Toolset
    effect: Effect
    help: str
    run: Run
    params: tuple[Param, ...] = ()
    reaches_out: bool = False
    looks: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()
    in_turn_by: str = ""
    needs_approval: bool = False

    def changes(self, args: Args) -> bool:
        """Whether a call of it with these arguments changes anything."""
        if self.changing:
            return any(name in args for name in self.changing)
        return self.effect is not Effect.READS and args.text("action") not in self.looks

    def is_obliged(self, args: Args) -> bool:
        """Whether a call of it with these arguments waits for a person, whoever makes it."""
        return self.needs_approval and (self.effect is Effect.READS or self.changes(args))

    def looking(self) -> Tool | None:
        """What of it changes nothing, as a tool; None where that is nothing."""
        if self.changing:
            params = tuple(param for param in self.params if param.name not in self.changing)
            return replace(self, effect=Effect.READS, params=params, changing=(), needs_approval=False)
        if self.looks:
            params = tuple(replace(one, choices=self.looks) if one.name == "action" else one for one in self.params)
            return replace(self, effect=Effect.READS, params=params, looks=(), needs_approval=False)
        return self if self.effect is Effect.READS else None
