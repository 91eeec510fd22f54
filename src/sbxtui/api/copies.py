"""Copies of a sandbox: others that go on from where it is now, or was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from sbxtui import arguments
from sbxtui.api.opened import Opened, opened_services

if TYPE_CHECKING:
    from sbxtui.services.plan import CreateOptions
    from sbxtui.services.snapshots import Snapshot


class Copies(Opened):
    """A sandbox that can be copied. A copy has its running processes on gVisor, its files elsewhere; none on AWS."""

    async def fork(
        self,
        name: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        network: str = "",
        idle_s: int | None = None,
        max_duration_s: int | None = None,
    ) -> Self:
        """Make a second sandbox that goes on from where this one is; it has its own id, randomness, and no secrets.

        Args:
            name: What to call it; None makes a name up.
            env: More environment of every command.
            labels: For filters.
            network: Empty for what this one may reach.
            idle_s: Suspend after so many seconds without traffic.
            max_duration_s: Terminate after so many seconds.

        Raises:
            Unsupported: It is on AWS. SbxError: It could not be made.
        """
        options = _options(env, labels, network, idle_s, max_duration_s)
        async with opened_services("", str(self._services.context.name)) as services:
            row = await services.snapshots.fork(self._row, arguments.sandbox_name(name), options)
            return type(self)(services, row, is_ours=True)

    async def snapshot(self, name: str | None = None) -> Snapshot:
        """Keep a copy of it as it stands; it goes on meanwhile. `restore` makes sandboxes of it.

        Args:
            name: What to call it; None: after the sandbox, with a number.

        Raises:
            Unsupported: It is on AWS. Conflict: A snapshot has that name.
        """
        return await self._services.snapshots.create(self._row, name)

    async def snapshots(self) -> list[Snapshot]:
        """All of its context's, by name.

        Raises:
            Unsupported: It is on AWS.
        """
        return await self._services.snapshots.list()

    async def remove_snapshot(self, name: str) -> None:
        """Delete one of its context's; sandboxes made from it live on.

        Raises:
            NotFound: There is none of that name.
        """
        snapshots = self._services.snapshots
        await snapshots.remove(await snapshots.find(name))

    @classmethod
    async def restore(
        cls,
        snapshot: str,
        name: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        network: str = "",
        idle_s: int | None = None,
        max_duration_s: int | None = None,
        context: str = "",
    ) -> Self:
        """Make a sandbox that goes on from a snapshot; the rest as in `fork`.

        Raises:
            NotFound: There is no such snapshot. SbxError: It could not be made.
        """
        options = _options(env, labels, network, idle_s, max_duration_s)
        async with opened_services("", context) as services:
            found = await services.snapshots.find(snapshot)
            row = await services.snapshots.restore(found, arguments.sandbox_name(name), options)
            return cls(services, row, is_ours=True)


def _options(
    env: Mapping[str, str] | None,
    labels: Mapping[str, str] | None,
    network: str,
    idle_s: int | None,
    max_duration_s: int | None,
) -> CreateOptions:
    from sbxtui.services.plan import CreateOptions

    return CreateOptions(
        env=arguments.environment(env),
        labels=arguments.texts("labels", labels),
        network=network,
        idle_s=arguments.at_least_one("idle_s", idle_s),
        max_duration_s=arguments.at_least_one("max_duration_s", max_duration_s),
    )
