"""Tags, which images and network connectors have, and sandboxes have not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sbxtui.localcloud import faults
from sbxtui.localcloud.catalog import Catalog, no_image
from sbxtui.localcloud.connectors.api import ConnectorApi
from sbxtui.localcloud.images.shelf import ImageShelf

MAX_TAGS = 50

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TagApi:
    """The tags of a home's images and connectors. The local cloud's own images have none, and take none."""

    catalog: Catalog
    shelf: ImageShelf
    connectors: ConnectorApi

    def handlers(self) -> dict[str, Callable[[Params], Awaitable[dict[str, Any]]]]:
        """By operation."""
        return {"ListTags": self.list_all, "TagResource": self.tag, "UntagResource": self.untag}

    async def list_all(self, params: Params) -> dict[str, Any]:
        """ListTags."""
        return {"Tags": self._tags(params["Resource"])}

    async def tag(self, params: Params) -> dict[str, Any]:
        """TagResource: adds, and replaces what has the same key."""
        arn = params["Resource"]
        tags = {**self._tags(arn), **params["Tags"]}
        if reserved := sorted(key for key in params["Tags"] if key.lower().startswith("aws:")):
            raise faults.invalid_parameter(f"Tag keys must not begin with aws: {reserved[0]}")
        if len(tags) > MAX_TAGS:
            raise faults.invalid_parameter(f"A resource has at most {MAX_TAGS} tags")
        self._replace(arn, tags)
        return {}

    async def untag(self, params: Params) -> dict[str, Any]:
        """UntagResource: a key that is not there is fine."""
        arn = params["Resource"]
        self._replace(arn, {key: value for key, value in self._tags(arn).items() if key not in params["TagKeys"]})
        return {}

    def _tags(self, arn: str) -> dict[str, str]:
        if ":network-connector:" in arn:
            return self.connectors.tags(arn)
        if (name := self.catalog.name_in(arn)) and (image := self.shelf.find(name)) is not None:
            return dict(image.tags)
        if self.catalog.find(arn) is not None:
            return {}
        raise no_image(arn)

    def _replace(self, arn: str, tags: Mapping[str, str]) -> None:
        if ":network-connector:" in arn:
            self.connectors.set_tags(arn, tags)
        elif (image := self.shelf.find(self.catalog.name_in(arn))) is not None:
            self.shelf.set_tags(image, tags)
        else:
            raise faults.access_denied(f"The image {arn} is the local cloud's own: it takes no tags")
