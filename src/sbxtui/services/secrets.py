"""Secrets of a running sandbox: inside there is a placeholder, and the way out puts the value in towards its hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sbxtui.control.extension import ask_local_cloud
from sbxtui.core.errors import NotFound, SandboxNotFound, Unsupported
from sbxtui.core.model import Context, ContextKind, Registration
from sbxtui.core.secrets import check_key, check_value, parse_places, usual_hosts
from sbxtui.core.text import harmless_line
from sbxtui.services.planes import ControlPlanes
from sbxtui.store.events import Events


@dataclass(frozen=True, slots=True)
class SecretState:
    """What may be known of a secret; never its value. `places` as `core.secrets` spells them.

    `is_told_inside` is False where the guest could not be told of the change.
    """

    key: str
    placeholder: str
    places: tuple[str, ...]
    is_told_inside: bool = True


class Secrets:
    """The secrets of one context's sandboxes."""

    def __init__(self, context: Context, planes: ControlPlanes, events: Events, actor: str) -> None:
        self._context = context
        self._planes = planes
        self._events = events
        self._actor = actor

    async def set(self, row: Registration, key: str, value: str, hosts: Sequence[str] = ()) -> SecretState:
        """Give a secret, or another value to one that is there; holds from the return on, while the sandbox runs.

        Args:
            row: The sandbox.
            key: The variable programs in it find the placeholder by.
            value: One line of printable ASCII.
            hosts: Where it may go: HOST, HOST:PORT, *.DOMAIN, http://HOST, or presets. Empty: where it went before,
                or where a variable of this name usually goes.

        Raises:
            UsageError: It cannot be a secret, or there is no host to go to.
            Unsupported: The context has no proxy that could put it in.
            Conflict: The sandbox may not reach a host, has no way out, or does not run. SandboxNotFound: It is gone.
        """
        self._check_can(row)
        check_value(value)
        if hosts or usual_hosts(check_key(key)):
            parse_places(hosts or usual_hosts(key))
        body: dict[str, Any] = {"value": value, **({"places": list(hosts)} if hosts else {})}
        state = _state_of(await self._ask("PUT", row, f"/{key}", body=body))
        await self._record(row, key, "set", state)
        return state

    async def list(self, row: Registration) -> Sequence[SecretState]:
        """By name.

        Raises:
            Unsupported: The context has none. SandboxNotFound: It is gone.
        """
        self._check_can(row)
        return [_state_of(told) for told in (await self._ask("GET", row, ""))["secrets"]]

    async def remove(self, row: Registration, key: str) -> SecretState:
        """Take a secret back: the next request does not carry it, whatever the sandbox does.

        Raises:
            NotFound: It has no such secret. Unsupported: The context has none. SandboxNotFound: It is gone.
        """
        self._check_can(row)
        try:
            state = _state_of(await self._ask("DELETE", row, f"/{check_key(key)}"))
        except SandboxNotFound:
            raise
        except NotFound as exc:
            # The local cloud knows no names of ours.
            hint = f"`sbx secret ls {row.name}` lists them"
            raise NotFound(f"`{row.name}` has no secret `{key}`", hint=hint) from exc
        await self._record(row, key, "rm", state)
        return state

    async def _record(self, row: Registration, key: str, action: str, state: SecretState) -> None:
        await asyncio.to_thread(
            self._events.record,
            context=row.context,
            kind="sandbox.secret",
            subject=row.name,
            actor=self._actor,
            data={"secret": key, "action": action, "hosts": list(state.places)},
        )

    def _check_can(self, row: Registration) -> None:
        check_can_carry(self._context, f"`{row.name}` is")

    async def _ask(self, method: str, row: Registration, path: str, **more: Any) -> dict[str, Any]:
        cloud = await self._planes.local_cloud()
        return await ask_local_cloud(cloud, method, f"/sandboxes/{row.id}/secrets{path}", **more)


def check_can_carry(context: Context, who_is: str) -> None:
    """Check that sandboxes of a context have a proxy of ours on their way out.

    Raises:
        Unsupported: They have none.
    """
    if context.kind is not ContextKind.LOCAL:
        raise Unsupported(
            f"{who_is} on AWS, where no proxy of ours could put a secret in on the way",
            hint="keep it in AWS Secrets Manager, and let the sandbox's execution role read it",
        )


def _state_of(told: dict[str, Any]) -> SecretState:
    return SecretState(
        key=harmless_line(str(told["key"])),
        placeholder=harmless_line(str(told["placeholder"])),
        places=tuple(harmless_line(str(place)) for place in told["places"]),
        is_told_inside=bool(told.get("isToldInside", True)),
    )
