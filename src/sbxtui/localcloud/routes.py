"""What each operation does. Input is decoded and checked already; output is model members, instants still datetimes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sbxtui.core.model import SandboxState
from sbxtui.localcloud import faults, tokens
from sbxtui.localcloud.fleet import Fleet
from sbxtui.localcloud.history import Lagging
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.launches import managed_connector
from sbxtui.localcloud.paging import page_of
from sbxtui.localcloud.records import Record, as_details, as_item
from sbxtui.localcloud.world import World

MAX_PAGE = 50
MAX_TOKEN_MINUTES = 60

Params = Mapping[str, Any]
Handler = Callable[[Params], Awaitable[dict[str, Any]]]


class Api:
    """The operations, by name. `find_image` gives the ARN of an image that is there; `more` are operations on others
    than sandboxes.
    """

    def __init__(
        self,
        fleet: Fleet,
        world: World,
        keys: HomeKeys,
        lagging: Lagging,
        find_image: Callable[[str], Awaitable[str]],
        more: Mapping[str, Handler],
    ) -> None:
        self._fleet = fleet
        self._world = world
        self._keys = keys
        self._lagging = lagging
        self._find_image = find_image
        self._handlers: dict[str, Handler] = {
            "RunMicrovm": self._run,
            "GetMicrovm": self._get,
            "ListMicrovms": self._list,
            "SuspendMicrovm": self._suspend,
            "ResumeMicrovm": self._resume,
            "TerminateMicrovm": self._terminate,
            "CreateMicrovmAuthToken": self._create_token,
            "CreateMicrovmShellAuthToken": self._create_shell_token,
            **more,
        }

    async def handle(self, operation: str, params: Params) -> dict[str, Any]:
        """Do it.

        Raises:
            Fault: What the service would answer.
        """
        self._world.account.take_call(operation)
        await self._fleet.until_known()
        return await self._handlers[operation](params)

    async def _run(self, params: Params) -> dict[str, Any]:
        return as_details(await self._fleet.run(params))

    async def _get(self, params: Params) -> dict[str, Any]:
        return as_details(self._lagging.shown(await self._fleet.seen(params["microvmIdentifier"])))

    async def _list(self, params: Params) -> dict[str, Any]:
        records = [self._lagging.shown(record) for record in self._fleet.records()]
        self._lagging.forget_all_but(record.id for record in records)
        if "imageIdentifier" in params:
            arn = await self._find_image(params["imageIdentifier"])
            records = [record for record in records if record.image_arn == arn]
        if "imageVersion" in params:
            records = [record for record in records if record.image_version == params["imageVersion"]]
        page, token = page_of(
            self._keys,
            "ListMicrovms",
            [(_position(record), record) for record in records],
            size=params.get("maxResults", MAX_PAGE),
            token=params.get("nextToken"),
            is_newest_first=True,
        )
        return {"items": [as_item(record) for record in page], **({"nextToken": token} if token else {})}

    async def _suspend(self, params: Params) -> dict[str, Any]:
        vm = self._fleet.get(params["microvmIdentifier"])
        vm.check_is(SandboxState.RUNNING, SandboxState.SUSPENDING, SandboxState.SUSPENDED)
        await self._fleet.settle(vm, vm.suspend())
        return {}

    async def _resume(self, params: Params) -> dict[str, Any]:
        vm = self._fleet.get(params["microvmIdentifier"])
        vm.check_is(SandboxState.RUNNING, SandboxState.SUSPENDING, SandboxState.SUSPENDED)
        await self._fleet.settle(vm, vm.resume())
        return {}

    async def _terminate(self, params: Params) -> dict[str, Any]:
        vm = self._fleet.get(params["microvmIdentifier"])
        await self._fleet.settle(vm, vm.terminate())
        return {}

    async def _create_token(self, params: Params) -> dict[str, Any]:
        ranges = tokens.port_ranges(params["allowedPorts"])
        token = tokens.mint(self._keys, self._grant(params, ranges))
        if len(token) > tokens.MAX_TOKEN_CHARS:
            raise faults.validation("Too many port specifications for one token; merge them into ranges")
        return {"authToken": {"X-aws-proxy-auth": token}}

    async def _create_shell_token(self, params: Params) -> dict[str, Any]:
        grant = self._grant(params, (), is_shell=True)
        ingress = self._fleet.get(params["microvmIdentifier"]).record.ingress_connectors
        has = {name: self._has_ingress(name, ingress) for name in ("ALL_INGRESS", "HTTP_INGRESS", "SHELL_INGRESS")}
        if not has["SHELL_INGRESS"]:
            raise faults.validation(
                "Shell access requires SHELL_INGRESS network connector to be configured on the MicroVM."
            )
        if has["ALL_INGRESS"]:
            raise faults.validation(
                "ALL_INGRESS cannot be combined with other ingress network connectors; use HTTP_INGRESS and/or "
                "SHELL_INGRESS instead"
            )
        return {"authToken": {"X-aws-proxy-auth": tokens.mint(self._keys, grant)}}

    def _grant(self, params: Params, ranges: tuple[tuple[int, int], ...], *, is_shell: bool = False) -> tokens.Grant:
        minutes = params["expirationInMinutes"]
        if minutes > MAX_TOKEN_MINUTES:
            raise faults.validation(f"ExpirationMinutes {minutes} exceeded max allowed of {MAX_TOKEN_MINUTES}.")
        vm = self._fleet.get(params["microvmIdentifier"])
        if vm.state.is_gone:
            vm.check_is(SandboxState.PENDING, SandboxState.RUNNING, SandboxState.SUSPENDED)
        return tokens.Grant(vm.record.id, ranges, datetime.now(UTC) + timedelta(minutes=minutes), is_shell)

    def _has_ingress(self, name: str, ingress: tuple[str, ...]) -> bool:
        return managed_connector(self._world.catalog.region, name) in ingress


def _position(record: Record) -> tuple[str, ...]:
    return (record.started_at.isoformat(timespec="microseconds"), record.id)
