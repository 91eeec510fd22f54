"""A sandbox, from making it to ending it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from sbxtui import arguments
from sbxtui.api.commands import Commands
from sbxtui.api.copies import Copies
from sbxtui.api.files import Files
from sbxtui.api.opened import opened_services
from sbxtui.api.ports import Ports
from sbxtui.api.secrets import Secrets
from sbxtui.api.seeing import Seeing
from sbxtui.api.sync import Synced
from sbxtui.core.errors import SandboxNotFound, SbxError
from sbxtui.core.secrets import NewSecret

log = logging.getLogger(__name__)


class Sandbox(Commands, Files, Ports, Seeing, Secrets, Copies, Synced):
    """One sandbox. Made by `create`, `fork`, `restore` or `attach`; close it, or use it in `async with`.

    Closed, it raises `Conflict`. Leaving `async with` leaves one that was attached as it is, and terminates all others.
    """

    @classmethod
    async def create(
        cls,
        name: str | None = None,
        *,
        image_arn: str = "",
        cpus: int | None = None,
        memory: int | str | None = None,
        execution_role_arn: str = "",
        region: str = "",
        ingress_network_connectors: Sequence[str] = (),
        egress_network_connectors: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        network: str = "",
        isolation: str = "",
        idle_s: int | None = None,
        max_duration_s: int | None = None,
        budget_usd: float | None = None,
        secrets: Sequence[NewSecret] = (),
        workdir: str = "",
        context: str = "",
    ) -> Self:
        """Make a sandbox and wait until it answers. What is left out is as `sbx create` has it.

        Args:
            name: What to call it; None makes a name up.
            image_arn: An image's ARN or name.
            cpus: Checked against what the size gives.
            memory: MiB, or text like `2g`; picks the image of that size.
            execution_role_arn: AWS only.
            region: AWS only; must be the context's.
            ingress_network_connectors: ARNs.
            egress_network_connectors: ARNs.
            env: Environment of every command.
            labels: For filters.
            network: `none`, `allow=HOST:PORT,…` or `internet`.
            isolation: `gvisor`, `isolation>=gvisor` and the like; refused where that is not to be had.
            idle_s: Suspend after so many seconds without traffic.
            max_duration_s: Terminate after so many seconds.
            budget_usd: Terminate before it can cost more than this, whatever happens to this machine.
            secrets: Keys its programs can use and not read; its network must reach their hosts.
            workdir: Working folder of commands.
            context: The control plane; empty for the one that counts on the command line.

        Raises:
            SbxError: It could not be made; cancelling takes back what was.
        """
        from sbxtui.services.plan import CreateOptions

        options = CreateOptions(
            image=image_arn,
            role=execution_role_arn,
            **arguments.sizes(memory, cpus),
            env=arguments.environment(env),
            labels=arguments.texts("labels", labels),
            **arguments.ends(idle_s, max_duration_s, budget_usd),
            network=network,
            isolation=isolation,
            egress_connectors=tuple(egress_network_connectors),
            ingress_connectors=tuple(ingress_network_connectors),
            secrets=tuple(secrets),
            workdir=workdir,
        )
        async with opened_services(region, context) as services:
            return cls(services, await services.launcher.create(arguments.sandbox_name(name), options), is_ours=True)

    @classmethod
    async def attach(cls, name: str, *, region: str = "", context: str = "") -> Self:
        """A sandbox that exists, by name, id, or a unique prefix of either; whoever made it.

        Raises:
            SandboxNotFound: There is none. AmbiguousReference: There are several.
        """
        async with opened_services(region, context) as services:
            return cls(services, await services.sandboxes.find(name), is_ours=False)

    async def start(self) -> None:
        """Resume it and wait until it answers; running already: nothing happens."""
        await self._services.sandboxes.resume(self._row)

    async def stop(self) -> None:
        """Suspend it: memory and disk are kept."""
        await self._services.sandboxes.suspend(self._row)

    async def terminate(self) -> None:
        """End it for good, free its name, and close. Doing it again is harmless."""
        if self._has_ended:
            return
        await self._services.sandboxes.remove(self._row)
        self._has_ended = True
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._is_ours and not self._has_ended:
                await asyncio.shield(self._end(is_failing=error is not None))
        finally:
            self.close()

    async def _end(self, *, is_failing: bool) -> None:
        try:
            await self.terminate()
        except SandboxNotFound:
            # Somebody else removed it: that is what we want.
            self._has_ended = True
        except SbxError as exc:
            if not is_failing:
                raise
            # The caller's own error says more than this one.
            log.warning("sandbox `%s` was not terminated: %s", self.name, exc.message)
