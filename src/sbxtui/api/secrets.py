"""A sandbox's secrets: programs in it find a placeholder, and requests to named hosts carry the value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbxtui.api.opened import Opened

if TYPE_CHECKING:
    from sbxtui.services.secrets import SecretState


class Secrets(Opened):
    """A sandbox that can be given keys it cannot read."""

    async def set_secret(self, key: str, value: str, hosts: Sequence[str] = ()) -> SecretState:
        """Give a secret, or another value to one that is there. The value is never in the sandbox, nor in any log.

        Args:
            key: The variable in which programs find the placeholder.
            value: One line of printable ASCII.
            hosts: Where it may go: HOST, HOST:PORT, *.DOMAIN, http://HOST, or presets. Empty: where it went before, or
                where a variable of this name usually goes.

        Raises:
            UsageError: It cannot be a secret, or there is no host to go to. Conflict: The sandbox may not reach one,
            or does not run. Unsupported: It is on AWS.
        """
        return await self._services.secrets.set(self._row, key, value, hosts)

    async def secrets(self) -> list[SecretState]:
        """Those it has, by name, without their values.

        Raises:
            Unsupported: It is on AWS.
        """
        return list(await self._services.secrets.list(self._row))

    async def remove_secret(self, key: str) -> None:
        """Take one back; nothing carries it from then on.

        Raises:
            NotFound: It has none of that name. Unsupported: It is on AWS.
        """
        await self._services.secrets.remove(self._row, key)
