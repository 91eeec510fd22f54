"""Clients of our MCP servers as every layer passes them around: who is there, and what a person lets each do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Allowed(StrEnum):
    """What a person lets a client do. UNKNOWN is the word of a newer sbx: such a client is left to that.

    ASKING: each call that would change something waits for a person.
    """

    RUNNING = "running"
    ASKING = "asking"
    PAUSED = "paused"
    ENDED = "ended"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Allowed:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class McpClient:
    """One client.

    Attributes:
        actor: As events name it: `mcp:claude-code#4121`.
        name: What it calls itself.
        owner: The text of the identity of the process that serves it.
        allowed: What a person lets it do.
        tool: What it asked for last; empty before its first call.
        code: How that ended: `ok`, or the code of an error.
        calls: How many there were.
    """

    actor: str
    name: str
    owner: str
    allowed: Allowed
    connected_at: datetime
    seen_at: datetime
    tool: str
    code: str
    calls: int


class Answer(StrEnum):
    """What a person said of a call."""

    NONE = ""
    APPROVED = "approved"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits.

    Attributes:
        actor: Whose call, as events name clients: `mcp:claude-code#4121`.
        owner: The text of the identity of the process in which it waits.
        tool: What it asks for.
        words: With which arguments, in one harmless line.
    """

    id: int
    actor: str
    owner: str
    tool: str
    words: str
    answer: Answer
    asked_at: datetime
    expires_at: datetime
