"""What each operation does. Input is decoded and checked already; output is model members, instants still datetimes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sbxtui.core.model import SandboxState
from sbxtui.localcloud import faults, tokens
from sbxtui.localcloud.catalog import Catalog
from sbxtui.localcloud.fleet import Fleet
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.records import Record, as_details, as_item

MAX_PAGE = 50
MAX_TOKEN_MINUTES = 60

Params = Mapping[str, Any]
Row = TypeVar("Row")
Handler = Callable[[Params], Awaitable[dict[str, Any]]]


class Api:
    """The operations, by name; `handle` refuses those of the model that are not here."""

    def __init__(self, fleet: Fleet, catalog: Catalog, keys: HomeKeys) -> None:
        self._fleet = fleet
        self._catalog = catalog
        self._keys = keys
        self._handlers: dict[str, Handler] = {
            "RunMicrovm": self._run,
            "GetMicrovm": self._get,
            "ListMicrovms": self._list,
            "SuspendMicrovm": self._suspend,
            "ResumeMicrovm": self._resume,
            "TerminateMicrovm": self._terminate,
            "CreateMicrovmAuthToken": self._create_token,
            "GetMicrovmImage": self._get_image,
            "ListMicrovmImages": self._list_images,
            "GetMicrovmImageVersion": self._get_version,
            "ListMicrovmImageVersions": self._list_versions,
            "ListManagedMicrovmImages": self._list_managed,
            "ListManagedMicrovmImageVersions": self._list_managed_versions,
        }

    def supports(self, operation: str) -> bool:
        """Whether the local cloud does this operation."""
        return operation in self._handlers

    async def handle(self, operation: str, params: Params) -> dict[str, Any]:
        """Do it.

        Raises:
            Fault: What the service would answer.
        """
        await self._fleet.until_known()
        return await self._handlers[operation](params)

    async def _run(self, params: Params) -> dict[str, Any]:
        return as_details(await self._fleet.run(params))

    async def _get(self, params: Params) -> dict[str, Any]:
        return as_details(await self._fleet.seen(params["microvmIdentifier"]))

    async def _list(self, params: Params) -> dict[str, Any]:
        records = self._fleet.records()
        if "imageIdentifier" in params:
            image = self._catalog.by_arn(params["imageIdentifier"])
            records = [record for record in records if record.image_arn == image.arn]
        if "imageVersion" in params:
            records = [record for record in records if record.image_version == params["imageVersion"]]
        page, token = self._page("ListMicrovms", params, [(_position(record), record) for record in records])
        return {"items": [as_item(record) for record in page], **token}

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
        minutes = params["expirationInMinutes"]
        if minutes > MAX_TOKEN_MINUTES:
            raise faults.validation(f"ExpirationMinutes {minutes} exceeded max allowed of {MAX_TOKEN_MINUTES}.")
        vm = self._fleet.get(params["microvmIdentifier"])
        if vm.state.is_gone:
            vm.check_is(SandboxState.PENDING, SandboxState.RUNNING, SandboxState.SUSPENDED)
        expires_at = datetime.now(UTC) + timedelta(minutes=minutes)
        grant = tokens.Grant(vm.record.id, tokens.port_ranges(params["allowedPorts"]), expires_at)
        token = tokens.mint(self._keys, grant)
        if len(token) > tokens.MAX_TOKEN_CHARS:
            raise faults.validation("Too many port specifications for one token; merge them into ranges")
        return {"authToken": {"X-aws-proxy-auth": token}}

    async def _get_image(self, params: Params) -> dict[str, Any]:
        return self._catalog.details(self._catalog.by_arn(params["imageIdentifier"]))

    async def _list_images(self, params: Params) -> dict[str, Any]:
        rows = [((image.name,), image) for image in self._catalog.all_images()]
        page, token = self._page("ListMicrovmImages", params, rows, is_newest_first=False)
        # As on the platform, the filter looks at one page only: a page may be empty and still have a next one.
        wanted = [image for image in page if params.get("nameFilter", "") in image.name]
        return {"items": [self._catalog.summary(image) for image in wanted], **token}

    async def _get_version(self, params: Params) -> dict[str, Any]:
        image = self._catalog.by_arn(params["imageIdentifier"])
        self._catalog.check_version(image, params["imageVersion"])
        return self._catalog.version_details(image)

    async def _list_versions(self, params: Params) -> dict[str, Any]:
        rows = [self._catalog.version_details(self._catalog.by_arn(params["imageIdentifier"]))]
        return self._rows("ListMicrovmImageVersions", params, rows, "imageVersion")

    async def _list_managed(self, params: Params) -> dict[str, Any]:
        return self._rows("ListManagedMicrovmImages", params, [self._catalog.managed_summary()], "imageArn")

    async def _list_managed_versions(self, params: Params) -> dict[str, Any]:
        rows = list(self._catalog.managed_versions(params["imageIdentifier"]))
        return self._rows("ListManagedMicrovmImageVersions", params, rows, "imageVersion")

    def _rows(self, operation: str, params: Params, rows: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
        page, token = self._page(operation, params, [((row[key],), row) for row in rows], is_newest_first=False)
        return {"items": page, **token}

    def _page(
        self,
        operation: str,
        params: Params,
        rows: Sequence[tuple[tuple[str, ...], Row]],
        *,
        is_newest_first: bool = True,
    ) -> tuple[list[Row], dict[str, str]]:
        """One page after the token's position, which is a value and no offset: rows that come and go repeat none."""
        if "nextToken" in params:
            last = tokens.read_page_token(self._keys, operation, params["nextToken"])
            rows = [row for row in rows if (row[0] < last if is_newest_first else row[0] > last)]
        size = params.get("maxResults", MAX_PAGE)
        page = [row for _, row in rows[:size]]
        if len(rows) <= size:
            return page, {}
        return page, {"nextToken": tokens.page_token(self._keys, operation, rows[size - 1][0])}


def _position(record: Record) -> tuple[str, ...]:
    return (record.started_at.isoformat(timespec="microseconds"), record.id)
