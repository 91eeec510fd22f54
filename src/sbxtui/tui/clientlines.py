"""Clients of the MCP servers as lines of a list: each with what it did last, below it what it asks for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sbxtui.core.clients import Allowed, Approval, McpClient
from sbxtui.core.text import harmless_line, short_age
from sbxtui.services.clients import ClientsView
from sbxtui.tui.widgets.columns import fitted
from sbxtui.tui.widgets.rows import Row

_TONES = {Allowed.RUNNING: "good", Allowed.ASKING: "calm", Allowed.PAUSED: "busy", Allowed.ENDED: "gone"}
_PID, _SINCE, _STATE, _CALLS = 8, 6, 8, 6
_NAME_MAX, _NAME_SHARE = 24, 5
_MARGIN = 2


@dataclass(frozen=True, slots=True)
class ClientLine:
    """One line: a client, and on those below it one of its calls that waits."""

    client: McpClient
    asks: Approval | None = None

    @property
    def key(self) -> str:
        """What tells it from the others."""
        return f"{self.client.actor} {self.asks.id if self.asks is not None else ''}"


def lines_of(view: ClientsView) -> list[ClientLine]:
    """Every client, below it what it waits for."""
    return [
        line
        for client in view.clients
        for line in (
            ClientLine(client),
            *(ClientLine(client, one) for one in view.waiting if one.actor == client.actor),
        )
    ]


def client_row(line: ClientLine, now: datetime, width: int) -> Row:
    """A line in `width` cells."""
    client = line.client
    if line.asks is not None:
        left = f"  {short_age(line.asks.expires_at - now)} left"
        words = harmless_line(f"{line.asks.tool} {line.asks.words}")
        room = max(0, width - _MARGIN - len("  asks for ") - len(left))
        return Row(line.key, (("  asks for ", "warn"), (fitted(words, room), ""), (left, "muted")))
    name_width = _name_width(width)
    return Row(
        line.key,
        (
            (fitted(harmless_line(client.name) or "client", name_width), ""),
            (_right(client.owner.partition(":")[0], _PID), "muted"),
            (_right(short_age(now - client.connected_at), _SINCE), "muted"),
            (f"  {fitted(client.allowed.value, _STATE)}", _TONES.get(client.allowed, "warn")),
            (_right(str(client.calls), _CALLS), "muted"),
            (f"  {last_call(client, now)}", "" if client.code in ("", "ok") else "warn"),
        ),
    )


def head_of(width: int) -> str:
    """What stands above the columns."""
    name = fitted("CLIENT", _name_width(width))
    return f"  {name}{'PID':>{_PID}}{'SINCE':>{_SINCE}}  {'STATE':<{_STATE}}{'CALLS':>{_CALLS}}  LAST CALL"


def words_of(line: ClientLine, now: datetime) -> str:
    """All that a line is about, for below the list."""
    if line.asks is not None:
        return harmless_line(f"{line.asks.tool} {line.asks.words}")
    return harmless_line(f"{line.client.actor} · {last_call(line.client, now)}")


def last_call(client: McpClient, now: datetime) -> str:
    """What it asked for last, how that ended, and how long ago."""
    if not client.tool:
        return "nothing yet"
    ending = "" if client.code == "ok" else f" ({harmless_line(client.code)})"
    return f"{harmless_line(client.tool)}{ending} {short_age(now - client.seen_at)} ago"


def _name_width(width: int) -> int:
    return min(_NAME_MAX, width // _NAME_SHARE)


def _right(text: str, width: int) -> str:
    return f"{text:>{width}}"
