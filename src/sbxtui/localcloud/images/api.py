"""What each operation on images does; the local cloud's own images are answered from its catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sbxtui.localcloud import catalog, faults
from sbxtui.localcloud.catalog import Catalog, no_image, no_version
from sbxtui.localcloud.images import documents
from sbxtui.localcloud.images.records import Image, Version
from sbxtui.localcloud.images.shelf import ImageShelf
from sbxtui.localcloud.keys import HomeKeys
from sbxtui.localcloud.paging import page_of

MAX_PAGE = 50

Params = Mapping[str, Any]
Rows = Sequence[tuple[tuple[str, ...], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ImageApi:
    """The images of a home: `shelf` holds the built ones."""

    catalog: Catalog
    shelf: ImageShelf
    keys: HomeKeys

    def handlers(self) -> dict[str, Callable[[Params], Awaitable[dict[str, Any]]]]:
        """By operation."""
        return {
            "CreateMicrovmImage": self.create,
            "UpdateMicrovmImage": self.update,
            "DeleteMicrovmImage": self.delete,
            "GetMicrovmImage": self.get,
            "ListMicrovmImages": self.list_all,
            "GetMicrovmImageVersion": self.get_version,
            "ListMicrovmImageVersions": self.list_versions,
            "UpdateMicrovmImageVersion": self.set_status,
            "DeleteMicrovmImageVersion": self.delete_version,
            "ListMicrovmImageBuilds": self.list_builds,
            "GetMicrovmImageBuild": self.get_build,
            "ListManagedMicrovmImages": self.list_managed,
            "ListManagedMicrovmImageVersions": self.list_managed_versions,
        }

    async def create(self, params: Params) -> dict[str, Any]:
        """CreateMicrovmImage: begins the build of version 1.0."""
        image, version = self.shelf.create(params)
        return documents.made_details(image, version, self.catalog.arn_of(image.name))

    async def update(self, params: Params) -> dict[str, Any]:
        """UpdateMicrovmImage: begins the build of a further version, of which nothing is taken from the one before."""
        image = self._built(params["imageIdentifier"])
        changed, version = self.shelf.update(image, params)
        return documents.made_details(changed, version, self.catalog.arn_of(changed.name))

    async def delete(self, params: Params) -> dict[str, Any]:
        """DeleteMicrovmImage: its name stays taken for a while."""
        arn = params["imageIdentifier"]
        self.shelf.delete(self._built(arn))
        return {"imageIdentifier": arn, "state": "DELETING"}

    async def get(self, params: Params) -> dict[str, Any]:
        """GetMicrovmImage."""
        arn = params["imageIdentifier"]
        if (image := self._find(arn)) is not None:
            return documents.image_details(image, arn)
        return self.catalog.details(self.catalog.by_arn(arn))

    async def list_all(self, params: Params) -> dict[str, Any]:
        """ListMicrovmImages, by name."""
        rows = [self.catalog.summary(image) for image in self.catalog.all_images()]
        rows += [documents.image_row(image, self.catalog.arn_of(image.name)) for image in self.shelf.living()]
        named = [((row["name"],), row) for row in sorted(rows, key=lambda row: str(row["name"]))]
        answer = self._page("ListMicrovmImages", params, named)
        # As on the platform, the filter looks at one page only: a page may be empty and still have a next one.
        wanted = params.get("nameFilter", "")
        return answer | {"items": [row for row in answer["items"] if wanted in row["name"]]}

    async def get_version(self, params: Params) -> dict[str, Any]:
        """GetMicrovmImageVersion."""
        arn, name = params["imageIdentifier"], params["imageVersion"]
        if (image := self._find(arn)) is not None:
            return documents.version_details(image, _version_of(image, arn, name), arn)
        found = self.catalog.by_arn(arn)
        self.catalog.check_version(found, name)
        return self.catalog.version_details(found)

    async def list_versions(self, params: Params) -> dict[str, Any]:
        """ListMicrovmImageVersions, oldest first."""
        arn = params["imageIdentifier"]
        if (image := self._find(arn)) is not None:
            rows = [((f"{one.number:09}",), documents.version_details(image, one, arn)) for one in image.versions]
        else:
            rows = [((catalog.IMAGE_VERSION,), self.catalog.version_details(self.catalog.by_arn(arn)))]
        return self._page("ListMicrovmImageVersions", params, rows)

    async def set_status(self, params: Params) -> dict[str, Any]:
        """UpdateMicrovmImageVersion: what is INACTIVE cannot be launched, not even by its number."""
        arn = params["imageIdentifier"]
        image = self._built(arn)
        version = _version_of(image, arn, params["imageVersion"])
        changed = self.shelf.set_status(image, version, params["status"])
        return documents.version_details(changed, _version_of(changed, arn, version.name), arn)

    async def delete_version(self, params: Params) -> dict[str, Any]:
        """DeleteMicrovmImageVersion."""
        arn = params["imageIdentifier"]
        image = self._built(arn)
        version = _version_of(image, arn, params["imageVersion"])
        self.shelf.delete_version(image, version)
        return {"imageIdentifier": arn, "imageVersion": version.name, "state": "DELETING"}

    async def list_builds(self, params: Params) -> dict[str, Any]:
        """ListMicrovmImageBuilds; why one failed stands here, and nowhere else."""
        wanted = ("architecture", "chipset", "chipsetGeneration")
        rows = [
            ((row["buildId"],), row)
            for row in self._builds(params)
            if all(params.get(name) in (None, row[name]) for name in wanted)
        ]
        return self._page("ListMicrovmImageBuilds", params, rows)

    async def get_build(self, params: Params) -> dict[str, Any]:
        """GetMicrovmImageBuild."""
        arn, build_id = params["imageIdentifier"], params["buildId"]
        row = next((row for row in self._builds(params) if row["buildId"] == build_id), None)
        if row is None:
            message = f"MicroVMImage build {build_id} not found for MicroVMImageID: {arn}"
            raise faults.not_found(message, "MicroVMImageBuild", build_id)
        image = self._find(arn)
        return documents.build_details(_version_of(image, arn, params["imageVersion"]), row) if image else row

    async def list_managed(self, params: Params) -> dict[str, Any]:
        """ListManagedMicrovmImages."""
        row = self.catalog.managed_summary()
        return self._page("ListManagedMicrovmImages", params, [((row["imageArn"],), row)])

    async def list_managed_versions(self, params: Params) -> dict[str, Any]:
        """ListManagedMicrovmImageVersions, newest first."""
        found = self.catalog.managed_versions(params["imageIdentifier"])
        rows = [((f"{index}",), row) for index, row in enumerate(found)]
        return self._page("ListManagedMicrovmImageVersions", params, rows)

    async def arn_of(self, arn: str) -> str:
        """The ARN of an image that is there, built or not.

        Raises:
            Fault: 400, 403, 404.
        """
        if self._find(arn) is None:
            self.catalog.by_arn(arn)
        return arn

    def _builds(self, params: Params) -> list[dict[str, Any]]:
        arn, name = params["imageIdentifier"], params["imageVersion"]
        if (image := self._find(arn)) is not None:
            return documents.build_rows(_version_of(image, arn, name), arn)
        found = self.catalog.by_arn(arn)
        self.catalog.check_version(found, name)
        return []

    def _find(self, arn: str) -> Image | None:
        catalog.check_arn(arn)
        name = self.catalog.name_in(arn)
        return self.shelf.find(name) if name else None

    def _built(self, arn: str) -> Image:
        image = self._find(arn)
        if image is not None:
            return image
        if self.catalog.find(arn) is not None:
            raise faults.access_denied(f"The image {arn} is the local cloud's own, and stays as it is")
        raise no_image(arn)

    def _page(self, operation: str, params: Params, rows: Rows) -> dict[str, Any]:
        size = params.get("maxResults", MAX_PAGE)
        page, token = page_of(self.keys, operation, rows, size=size, token=params.get("nextToken"))
        return {"items": page, **({"nextToken": token} if token else {})}


def _version_of(image: Image, arn: str, name: str) -> Version:
    version = image.version(name)
    if version is None:
        raise no_version(arn, name)
    return version
