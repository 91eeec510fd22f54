"""Bases: roots of other systems that local images may be built from."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sbxtui.control.extension import ask_local_cloud
from sbxtui.core.errors import FileMissing
from sbxtui.services.planes import ControlPlanes

# A root of a few gigabytes is copied first.
_COPY_S = 900.0


@dataclass(frozen=True, slots=True)
class Base:
    """One base. `python` is what runs the guest in it, or begins with `none` and says why; known after `add` only."""

    name: str
    source: str
    made_at: datetime
    size_bytes: int
    python: str = ""


class Bases:
    """The bases of this home's local cloud."""

    def __init__(self, planes: ControlPlanes) -> None:
        self._planes = planes

    async def add(self, name: str, source: Path) -> Base:
        """Copy a folder, or unpack a tar, as a base.

        Raises:
            UsageError: It is no root of a system, or the name cannot be. Conflict: The name is taken.
            FileMissing: Nothing is there.
        """
        if not source.exists():
            raise FileMissing(f"no file or folder at {source} on this machine")
        asked = {"name": name, "source": str(source.absolute())}
        return _base_of(await self._ask("PUT", body=asked, wait_s=_COPY_S))

    async def list(self) -> builtins.list[Base]:
        """All of them, by name."""
        return [_base_of(raw) for raw in (await self._ask("GET"))["bases"]]

    async def remove(self, name: str) -> None:
        """Forget one, and delete its copy.

        Raises:
            NotFound: There is none. Conflict: Images or sandboxes are of it.
        """
        await self._ask("DELETE", query={"name": name})

    async def _ask(
        self,
        method: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> dict[str, Any]:
        cloud = await self._planes.local_cloud()
        return await ask_local_cloud(cloud, method, "/bases", body=body, query=query, wait_s=wait_s)


def _base_of(raw: Mapping[str, Any]) -> Base:
    return Base(
        name=str(raw["name"]),
        source=str(raw["source"]),
        made_at=datetime.fromisoformat(raw["madeAt"]),
        size_bytes=int(raw["sizeBytes"]),
        python=str(raw.get("python", "")),
    )
