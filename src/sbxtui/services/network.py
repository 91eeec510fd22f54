"""What a sandbox may reach: shown, changed while it runs, and the log of what it asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from sbxtui.control.extension import ask_local_cloud
from sbxtui.control.local import find_local_cloud
from sbxtui.core.egress import NO_NETWORK, NetworkPolicy, parse_network
from sbxtui.core.errors import SandboxNotFound, Unsupported
from sbxtui.core.isolation import accepts
from sbxtui.core.model import Context, ContextKind, Registration
from sbxtui.core.text import harmless_line
from sbxtui.core.values import dataclass
from sbxtui.home import Home
from sbxtui.services.planes import ControlPlanes
from sbxtui.store.events import Events
from sbxtui.store.registry import Registry

_FOLLOW_S = 20.0
_HOST = "host"
_NO_ISOLATION = "process"


@dataclass(frozen=True, slots=True)
class NetworkState:
    """What holds now. `is_enforced` is False where a sandbox shares this machine's network (`text` is `host`)."""

    text: str
    is_enforced: bool
    open_connections: int = 0
    cut_connections: int = 0


@dataclass(frozen=True, slots=True)
class NetworkEntry:
    """One line of a sandbox's network log, made harmless.

    `action` is allowed, refused, failed, secret (put in were `secrets`), ended or changed. `job` is what the sandbox
    itself says of who asked.
    """

    seq: int
    at: datetime
    action: str
    host: str = ""
    port: int = 0
    method: str = ""
    job: str = ""
    reason: str = ""
    address: str = ""
    network: str = ""
    secrets: str = ""
    sent_bytes: int | None = None
    received_bytes: int | None = None
    duration_s: float | None = None
    left_out: int = 0


class Networks:
    """The networks of one context's sandboxes."""

    def __init__(self, context: Context, planes: ControlPlanes, registry: Registry, events: Events, actor: str) -> None:
        self._context = context
        self._planes = planes
        self._registry = registry
        self._events = events
        self._actor = actor

    async def state(self, row: Registration) -> NetworkState:
        """What a sandbox may reach, asked now; on AWS what its launch settled.

        Raises:
            SandboxNotFound: It is gone.
        """
        if self._context.kind is not ContextKind.LOCAL:
            return NetworkState(str(row.facts.get("network") or "unknown"), is_enforced=True)
        return _state_of(await self._ask("GET", row, ""))

    async def change(self, row: Registration, policy: NetworkPolicy) -> NetworkState:
        """Have a policy hold from the return on; connections it no longer allows are cut.

        Raises:
            Unsupported: The context settles the network at launch.
            Conflict: Nothing would enforce it. SandboxNotFound: It is gone.
        """
        self._check_can_change(row)
        state = _state_of(await self._ask("PUT", row, "", body={"network": policy.text}))
        facts = {"network": state.text}
        await asyncio.to_thread(self._registry.change_facts, row.context, row.name, facts, actor=self._actor)
        await asyncio.to_thread(
            self._events.record,
            context=row.context,
            kind="sandbox.network",
            subject=row.name,
            actor=self._actor,
            data={"network": state.text},
        )
        return state

    async def log(self, row: Registration) -> Sequence[NetworkEntry]:
        """The newest entries, oldest first.

        Raises:
            Unsupported: The context keeps no such log.
        """
        self._check_can_change(row)
        return _entries_of(await self._ask("GET", row, "/log"))

    async def follow(self, row: Registration, *, after: int) -> AsyncIterator[NetworkEntry]:
        """Entries behind a number as they come; ends when the sandbox has."""
        while True:
            query = {"after": str(after), "wait": f"{_FOLLOW_S:.0f}"}
            try:
                answer = await self._ask("GET", row, "/log", query=query, wait_s=_FOLLOW_S)
            except SandboxNotFound:
                return
            for entry in _entries_of(answer):
                after = entry.seq
                yield entry
            if answer.get("isOver"):
                return

    def _check_can_change(self, row: Registration) -> None:
        if self._context.kind is not ContextKind.LOCAL:
            raise Unsupported(
                f"the network of `{row.name}` was settled at its launch: context `{self._context.name}` is AWS's",
                hint="an egress connector decides there: `sbx create --egress-connector ARN`",
            )

    async def _ask(self, method: str, row: Registration, path: str, **more: Any) -> dict[str, Any]:
        cloud = await self._planes.local_cloud()
        return await ask_local_cloud(cloud, method, f"/sandboxes/{row.id}/network{path}", **more)


async def apply_at_launch(planes: ControlPlanes, row: Registration) -> None:
    """Open what a fresh local sandbox was made with, before anything runs in it; a replay does the same again."""
    network = str(row.facts.get("network") or "")
    if not network.startswith("allow=") and network != "internet":
        return
    if planes.context(row.context).kind is ContextKind.LOCAL:
        cloud = await planes.local_cloud()
        await ask_local_cloud(cloud, "PUT", f"/sandboxes/{row.id}/network", body={"network": network})


def has_own_network(home: Home, context: Context, isolation: str = "") -> bool:
    """Whether a new sandbox has a network of its own, so that something can decide what it reaches.

    Args:
        home: Whose local cloud.
        context: Where the sandbox is made.
        isolation: What is asked for, empty for what there is.
    """
    if context.kind is not ContextKind.LOCAL:
        return True
    if isolation:
        return not accepts(isolation, _NO_ISOLATION)
    cloud = find_local_cloud(home)
    return cloud is None or cloud.runtime != _NO_ISOLATION


def policy_of(text: str) -> NetworkPolicy:
    """A state's words as a policy; what is no policy of ours allows nothing."""
    return NO_NETWORK if text == _HOST else parse_network(text)


def _state_of(answer: dict[str, Any]) -> NetworkState:
    return NetworkState(
        text=harmless_line(str(answer["network"]), limit=20_000),
        is_enforced=bool(answer["isEnforced"]),
        open_connections=int(answer.get("openConnections", 0)),
        cut_connections=int(answer.get("cutConnections", 0)),
    )


def _entries_of(answer: dict[str, Any]) -> list[NetworkEntry]:
    return [_entry_of(raw) for raw in answer["entries"]]


def _entry_of(raw: dict[str, Any]) -> NetworkEntry:
    """Hosts and job ids come from the sandbox: they are made harmless here."""

    def words(name: str) -> str:
        return harmless_line(str(raw.get(name, "")))

    def count(name: str) -> int | None:
        return int(raw[name]) if name in raw else None

    return NetworkEntry(
        seq=int(raw["seq"]),
        at=datetime.fromisoformat(raw["at"]),
        action=words("action"),
        host=words("host"),
        port=count("port") or 0,
        method=words("method"),
        job=words("job"),
        reason=words("reason"),
        address=words("address"),
        network=words("network"),
        secrets=words("secrets"),
        sent_bytes=count("sent_bytes"),
        received_bytes=count("received_bytes"),
        duration_s=float(raw["duration_s"]) if "duration_s" in raw else None,
        left_out=count("left_out") or 0,
    )
