"""Ports as a person writes them: one here, one in a sandbox. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sbxtui.core.errors import UsageError

_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class PortPair:
    """A port of this machine, 0 for any, and the port of the sandbox it leads to."""

    local_port: int
    remote_port: int


def parse_mapping(text: str) -> PortPair:
    """`LOCAL`, `LOCAL:REMOTE` or `:REMOTE` (any local port).

    Raises:
        UsageError: It is something else.
    """
    local, colon, remote = text.partition(":")
    try:
        if not colon:
            return PortPair(_port(local), _port(local))
        return PortPair(_port(local or "0", least=0), _port(remote))
    except ValueError as exc:
        raise UsageError(
            f"`{text[:40]}` is no forward: {exc}", hint="PORT, LOCAL:REMOTE, or :REMOTE for any local port"
        ) from exc


def _port(text: str, *, least: int = 1) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and least <= int(text) <= _MAX_PORT):
        raise ValueError(f"`{text[:20]}` is no port")
    return int(text)
