"""What a forward is: values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sbxtui.core.errors import UsageError
from sbxtui.core.hosts import as_address, authority, normal_host
from sbxtui.core.ports import PortPair
from sbxtui.core.webgate import Gate, gate_for
from sbxtui.store.links import Link

KIND = "forward"
LOOPBACK = ("127.0.0.1", "::1")


class Mode(StrEnum):
    """How connections come to the sandbox."""

    # Over one connection to its guest: any protocol, and what is open outlives that connection.
    TUNNEL = "tunnel"
    # Through its endpoint, whatever its image holds: HTTP and WebSocket.
    PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class ForwardSpec:
    """One forward.

    Attributes:
        local_port: Of this machine.
        remote_port: Of the sandbox's loopback.
        bind: The one address it listens on; empty for this machine's loopback.
        hosts: More names a browser may call this machine by.
        origins: Origins of other sites whose pages may change things.
        mode: How connections come to the sandbox.
    """

    local_port: int
    remote_port: int
    bind: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    mode: Mode = Mode.TUNNEL

    @property
    def key(self) -> str:
        """The kind of its link: a port of this machine is forwarded once."""
        return f"{KIND}:{self.local_port}"

    @property
    def gate(self) -> Gate:
        """Who may pass."""
        is_everywhere = bool(self.bind) and is_wildcard(self.bind)
        named = (f"[{self.bind}]" if ":" in self.bind else self.bind,) if self.bind and not is_everywhere else ()
        return gate_for((*self.hosts, *named), self.origins, has_any_address=is_everywhere)

    def url(self, sandbox: str) -> str:
        """Where a browser finds it, under a name of its own so that cookies of two forwards do not mix."""
        if self.bind and not is_wildcard(self.bind):
            return f"http://{authority(self.bind, self.local_port)}"
        return f"http://{sandbox}-{self.remote_port}.localhost:{self.local_port}"

    def as_row(self) -> dict[str, object]:
        """As a link's row has it."""
        return {
            "local_port": self.local_port,
            "remote_port": self.remote_port,
            "bind": self.bind,
            "hosts": list(self.hosts),
            "origins": list(self.origins),
            "mode": self.mode.value,
        }

    @classmethod
    def of(cls, link: Link) -> ForwardSpec:
        """Of a link's row."""
        spec = link.spec
        return cls(
            int(spec["local_port"]),
            int(spec["remote_port"]),
            str(spec.get("bind", "")),
            tuple(spec.get("hosts", ())),
            tuple(spec.get("origins", ())),
            Mode(spec.get("mode", Mode.TUNNEL)),
        )


@dataclass(slots=True)
class ForwardStatus:
    """How a forward is, as its owner says.

    Attributes:
        state: Of the way to the sandbox, in `TunnelState`'s words.
        reason: Why, in words.
        last_error: The last connection that came to nothing, in words.
        open: Connections now.
        accepted: Connections so far.
        sent_bytes: To the sandbox.
        received_bytes: From it.
    """

    state: str = "idle"
    reason: str = ""
    last_error: str = ""
    open: int = 0
    accepted: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    addresses: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """As a link's row and `--json` have it."""
        return {
            "state": self.state,
            "reason": self.reason,
            "last_error": self.last_error,
            "open_connections": self.open,
            "accepted_connections": self.accepted,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "addresses": list(self.addresses),
        }


def parse_mode(text: str) -> Mode | None:
    """A mode by its name; None for none.

    Raises:
        UsageError: There is no such mode.
    """
    if text and text not in list(Mode):
        raise UsageError(f"`{text[:40]}` is no way to forward", hint="tunnel, or proxy")
    return Mode(text) if text else None


def specs_of(
    pairs: Sequence[PortPair],
    *,
    bind: str,
    hosts: Sequence[str],
    origins: Sequence[str],
    reserved: Mapping[int, str],
    mode: Mode = Mode.TUNNEL,
) -> list[ForwardSpec]:
    """Forwards as a person asked for them.

    Args:
        pairs: One each.
        bind: Empty for loopback.
        hosts: More names of this machine.
        origins: Origins that may pass.
        reserved: Ports of a sandbox that are not forwarded, and what they are.
        mode: How connections come to the sandbox.

    Raises:
        UsageError: One cannot be.
    """
    if not pairs:
        raise UsageError("no port was named", hint="sbx forward NAME 8000, or LOCAL:REMOTE")
    locals_ = [pair.local_port for pair in pairs if pair.local_port]
    if len(set(locals_)) < len(locals_):
        raise UsageError("a local port was named twice", hint="LOCAL:REMOTE gives each its own")
    for pair in pairs:
        if pair.remote_port in reserved:
            raise UsageError(
                f"port {pair.remote_port} of a sandbox is {reserved[pair.remote_port]} and is not forwarded",
                hint="have your server listen on another port",
            )
    try:
        address = normal_host(bind) if bind else ""
        if address and as_address(address) is None:
            raise ValueError(f"`{address}` is no address")
        gate_for(hosts, origins)
    except ValueError as exc:
        raise UsageError(str(exc), hint="--bind ADDRESS, --host NAME, --allow-origin https://NAME") from exc
    names, pages = tuple(hosts), tuple(origins)
    return [ForwardSpec(pair.local_port, pair.remote_port, address, names, pages, mode) for pair in pairs]


def is_wildcard(address: str) -> bool:
    """Whether an address stands for all of this machine's."""
    parsed = as_address(address)
    return parsed is not None and parsed.is_unspecified


def facts_of(link: Link) -> dict[str, Any]:
    """A forward as listings show it: what is asked for and how it is."""
    spec = ForwardSpec.of(link)
    state = str(link.status.get("state", "starting")) if link.is_served else "not running"
    return {
        "sandbox": link.sandbox,
        "context": link.context,
        **spec.as_row(),
        "url": spec.url(link.sandbox),
        "detached": link.is_detached,
        "running": link.is_served,
        **link.status,
        "state": state,
    }
