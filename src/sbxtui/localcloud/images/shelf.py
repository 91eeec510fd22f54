"""The built images of a home: made, changed, deleted, and found for launches. One event loop; builds run beside it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sbxtui.core.model import SandboxState
from sbxtui.localcloud import faults
from sbxtui.localcloud.account import BUILDS_CODE, IMAGES_CODE, VERSIONS_CODE, Account
from sbxtui.localcloud.catalog import MANAGED_VERSIONS, Catalog, CatalogImage
from sbxtui.localcloud.images import rules
from sbxtui.localcloud.images.records import (
    ACTIVE,
    BUILT,
    FAILED,
    INACTIVE,
    SUCCESSFUL,
    UNDER_WAY,
    Image,
    ImageStore,
    Version,
)
from sbxtui.localcloud.keeper_place import remove_trees
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.replays import fingerprint

log = logging.getLogger(__name__)

DELETE_IMAGE_S, DELETE_VERSION_S = 30.0, 5.0
_INTERRUPTED = "INTERNAL_PLATFORM_ERROR: the local cloud ended while the image was built"
_NOT_ASKED = ("name", "tags", "clientToken", "imageIdentifier")


@dataclass(frozen=True, slots=True)
class BuiltLog:
    """The log of a build, and when that began."""

    image: str
    version: str
    began_at: datetime
    file: Path


# Builds a version; what it became, SUCCESSFUL or FAILED with a reason.
Build = Callable[[str, Version], Awaitable[Version]]


@dataclass(slots=True)
class ImageShelf:
    """`records` tells all sandboxes; `check_egress` raises for a connector that a build cannot use."""

    catalog: Catalog
    store: ImageStore
    account: Account
    build: Build
    records: Callable[[], list[Record]]
    check_egress: Callable[[str], None]
    time_scale: float = 1.0
    _building: set[asyncio.Task[None]] = field(default_factory=set)

    def begin(self) -> None:
        """Say of builds that an earlier process left that they failed; to be called once, before the first request."""
        for image in self.store.load_all():
            for version in image.versions:
                if version.state in UNDER_WAY:
                    self._finish(image.name, version.with_changes(state=FAILED, status=INACTIVE, reason=_INTERRUPTED))

    async def close(self) -> None:
        """Give up the builds under way."""
        for task in self._building:
            task.cancel()
        await asyncio.gather(*self._building, return_exceptions=True)

    # Finding

    def living(self) -> Iterator[Image]:
        """All but those whose deletion is over, by name."""
        for image in self.store.load_all():
            if (found := self._settled(image)) is not None:
                yield found

    def find(self, name: str) -> Image | None:
        """One of them."""
        image = self.store.load(name)
        return self._settled(image) if image is not None else None

    def for_launch(self, name: str, version: str | None) -> CatalogImage | None:
        """What a launch gets: the newest active version, or the named one if it is active."""
        image = self.find(name)
        if image is None or image.deleting_at is not None:
            return None
        found = image.newest(SUCCESSFUL) if version is None else image.version(version)
        if found is None or not found.is_launchable:
            return None
        arn = self.catalog.arn_of(name)
        origin = f"{BUILT}{found.build_id}"
        return CatalogImage(
            name, arn, found.memory_mib, version=found.name, program=found.program, origin=origin, runtime=found.runtime
        )

    def bases(self) -> set[str]:
        """The folders of bases that versions are of, and sandboxes that live."""
        programs = [version.program for image in self.living() for version in image.versions]
        programs += [one.program for one in self.records() if one.program and one.state is not SandboxState.TERMINATED]
        return {program.base for program in programs if program.base}

    def build_logs(self) -> Iterator[BuiltLog]:
        """What builds said, of images that are there."""
        for image in self.living():
            for version in image.versions:
                yield BuiltLog(image.name, version.name, version.made_at, self.store.log_of(version.build_id))

    # Changing

    def create(self, params: Mapping[str, Any]) -> tuple[Image, Version]:
        """Begin an image. The same client token with the same request gives the same one.

        Raises:
            Fault: 400, 402, 409.
        """
        self._check(params)
        known = self.find(params["name"])
        if known is not None and (token := params.get("clientToken", "")) in known.tokens:
            return known, _replayed(known, token, params)
        if known is not None or self.catalog.find(self.catalog.arn_of(params["name"])) is not None:
            name = params["name"]
            raise faults.validation(f"A MicroVM image with the name '{name}' already exists in this account")
        self.account.check_count(sum(1 for _ in self.living()), "images", IMAGES_CODE)
        self.account.check_count(len(self._building), "builds", BUILDS_CODE)
        now = datetime.now(UTC)
        version = _new_version(1, params, now)
        tags, tokens = params.get("tags", {}), _token_of(params)
        image = Image(params["name"], "CREATING", now, now, (version,), tags=tags, tokens=tokens)
        self.store.save(image)
        self._begin(image.name, version)
        return image, version

    def update(self, image: Image, params: Mapping[str, Any]) -> tuple[Image, Version]:
        """Begin a further version; what the request leaves out is not taken from the one before.

        Raises:
            Fault: 400, 402, 409.
        """
        self._check(params)
        if (token := params.get("clientToken", "")) in image.tokens:
            return image, _replayed(image, token, params)
        if image.state in ("CREATING", "UPDATING") or image.deleting_at is not None:
            state = "DELETING" if image.deleting_at is not None else image.state
            raise _conflict(f"MicroVM Image is already in state: {state}", image.name)
        self.account.check_count(len(image.versions), "versions", VERSIONS_CODE)
        self.account.check_count(len(self._building), "builds", BUILDS_CODE)
        version = _new_version(image.made + 1, params, datetime.now(UTC))
        changed = image.with_version(version).with_changes(
            state="UPDATING", made=image.made + 1, tokens={**image.tokens, **_token_of(params)}
        )
        self.store.save(changed)
        self._begin(image.name, version)
        return changed, version

    def delete(self, image: Image) -> None:
        """Begin to delete an image; deleting already: nothing happens.

        Raises:
            Fault: 409, sandboxes of it live, or it is being made.
        """
        if image.deleting_at is not None:
            return
        if image.state in ("CREATING", "UPDATING"):
            raise _conflict("Cannot delete MicroVM image in its current state", image.name)
        if self._is_used(image.name):
            raise _conflict("Cannot delete MicroVM image with running MicroVMs", image.name)
        self.store.save(image.with_changes(deleting_at=datetime.now(UTC)))

    def delete_version(self, image: Image, version: Version) -> None:
        """Begin to delete a version.

        Raises:
            Fault: 400, it is the last one; 409, sandboxes of it live, or it is being made.
        """
        if version.deleting_at is not None:
            return
        if sum(one.deleting_at is None for one in image.versions) == 1:
            raise faults.validation("This is the last version. Please delete the entire image")
        if version.state in UNDER_WAY:
            raise _conflict("Cannot delete MicroVM image version in its current state", image.name)
        if self._is_used(image.name, version.name):
            raise _conflict("Cannot delete MicroVM image version with running MicroVMs", image.name)
        self.store.save(image.with_version(version.with_changes(deleting_at=datetime.now(UTC))))

    def set_status(self, image: Image, version: Version, status: str) -> Image:
        """Make a version one that can be launched, or none.

        Raises:
            Fault: 409, it was not built.
        """
        if version.state != SUCCESSFUL or version.deleting_at is not None:
            raise _conflict(f"MicroVM image version {version.name} is in state {version.state}", image.name)
        now = datetime.now(UTC)
        changed = image.with_version(version.with_changes(status=status, changed_at=now))
        self.store.save(changed)
        return changed

    def set_tags(self, image: Image, tags: Mapping[str, str]) -> None:
        """Replace its tags."""
        self.store.save(image.with_changes(tags=dict(tags)))

    # Inside

    def _check(self, params: Mapping[str, Any]) -> None:
        rules.check_request(params, self.catalog.managed_arn, MANAGED_VERSIONS, self.check_egress)

    def _begin(self, name: str, version: Version) -> None:
        task = asyncio.create_task(self._build(name, version))
        self._building.add(task)
        task.add_done_callback(self._building.discard)

    async def _build(self, name: str, version: Version) -> None:
        self._replace(name, version.with_changes(state="IN_PROGRESS"))
        try:
            built = await self.build(name, version)
        except Exception as exc:
            log.exception("the build of %s %s broke", name, version.name)
            built = version.with_changes(state=FAILED, status=INACTIVE, reason=f"INTERNAL_PLATFORM_ERROR: {exc}")
        self._finish(name, built)

    def _finish(self, name: str, version: Version) -> None:
        now = datetime.now(UTC)
        image = self._replace(name, version.with_changes(changed_at=now))
        if image is not None:
            verb = "CREATE" if image.state == "CREATING" else "UPDATE"
            state = f"{verb}D" if version.state == SUCCESSFUL else f"{verb}_FAILED"
            self.store.save(image.with_changes(state=state, changed_at=now))

    def _replace(self, name: str, version: Version) -> Image | None:
        image = self.store.load(name)
        if image is None:
            return None
        changed = image.with_version(version)
        self.store.save(changed)
        return changed

    def _settled(self, image: Image) -> Image | None:
        """An image without what has been deleted by now; None: that is all of it."""
        if self._is_over(image.deleting_at, DELETE_IMAGE_S):
            self.store.forget(image.name)
            self._remove(image.versions)
            return None
        gone = [one for one in image.versions if self._is_over(one.deleting_at, DELETE_VERSION_S)]
        if not gone:
            return image
        left = image.with_changes(versions=tuple(one for one in image.versions if one not in gone))
        self.store.save(left)
        self._remove(gone)
        return left

    def _is_over(self, deleting_at: datetime | None, window_s: float) -> bool:
        window = timedelta(seconds=window_s / self.time_scale)
        return deleting_at is not None and datetime.now(UTC) >= deleting_at + window

    def _remove(self, versions: Any) -> None:
        remove_trees([self.store.folder_of(one.build_id) for one in versions])
        for one in versions:
            self.store.log_of(one.build_id).unlink(missing_ok=True)

    def _is_used(self, name: str, version: str = "") -> bool:
        arn = self.catalog.arn_of(name)
        living = (one for one in self.records() if one.image_arn == arn and one.state is not SandboxState.TERMINATED)
        return any(version in ("", one.image_version) for one in living)


def _new_version(number: int, params: Mapping[str, Any], now: datetime) -> Version:
    asked = {name: value for name, value in params.items() if name not in _NOT_ASKED}
    return Version(f"{number}.0", "PENDING", ACTIVE, asked, now, now, uuid.uuid4().hex)


def _token_of(params: Mapping[str, Any]) -> dict[str, str]:
    return {params["clientToken"]: fingerprint(params)} if "clientToken" in params else {}


def _replayed(image: Image, token: str, params: Mapping[str, Any]) -> Version:
    if image.tokens[token] != fingerprint(params):
        raise _conflict("The client token was used before with other parameters", image.name)
    return image.versions[-1]


def _conflict(message: str, name: str) -> faults.Fault:
    return faults.conflict(message, "MicroVMImage", name)
