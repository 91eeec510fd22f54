"""What the local cloud answers of bases, under `/sbx/v1/bases`, beside AWS's API.

GET    /sbx/v1/bases                                    all of them
PUT    /sbx/v1/bases        {"name": …, "source": PATH}   one more, of a folder or a tar of this machine
DELETE /sbx/v1/bases?name=NAME
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.core.text import harmless_line
from sbxtui.localcloud import faults
from sbxtui.localcloud.bases.root import BadRoot
from sbxtui.localcloud.bases.store import NAME, Base, BaseStore
from sbxtui.localcloud.images.recipe import BASES
from sbxtui.localcloud.runtimes.base_python import interpreter_in
from sbxtui.localcloud.sigv4 import HttpRequest

PREFIX = "/sbx/v1/bases"


class BaseApi:
    """Answers requests whose signature was checked. `used` tells the folders of roots that images are of."""

    def __init__(self, store: BaseStore, images_dir: Path, used: Callable[[], Iterable[str]]) -> None:
        self._store = store
        self._images_dir = images_dir
        self._used = used
        self._lock = asyncio.Lock()

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """The answer's document.

        Raises:
            Fault: What goes wrong, in the service's own shape.
        """
        if request.raw_path != PREFIX:
            raise faults.unknown_operation()
        match request.method:
            case "GET":
                return {"bases": [_document(one) for one in await asyncio.to_thread(self._store.all)]}
            case "PUT":
                name, source = _asked(request.body)
                return await asyncio.shield(self._add(name, source))
            case "DELETE":
                return await self._remove("".join(parse_qs(request.query).get("name", [])))
            case _:
                raise faults.unknown_operation()

    async def _add(self, name: str, source: Path) -> dict[str, Any]:
        async with self._lock:
            if name in BASES or await asyncio.to_thread(self._store.find, name) is not None:
                raise faults.conflict(f"There is a base {name} already", "Base", name)
            try:
                base = await asyncio.to_thread(self._store.add, name, source)
            except BadRoot as exc:
                raise faults.validation(harmless_line(str(exc), limit=400)) from exc
            return _document(base) | {"python": await asyncio.to_thread(self._python_of, base)}

    def _python_of(self, base: Base) -> str:
        try:
            return interpreter_in(self._store.root_of(base.folder), self._images_dir).executable
        except RuntimeUnavailable as exc:
            return f"none: {exc.message}"

    async def _remove(self, name: str) -> dict[str, Any]:
        async with self._lock:
            base = await asyncio.to_thread(self._store.find, name)
            if base is None:
                raise faults.not_found(f"There is no base {harmless_line(name, limit=128)}", "Base", name)
            if base.folder in self._used():
                raise faults.conflict(f"There are images or sandboxes of the base {name}", "Base", name)
            await asyncio.to_thread(self._store.remove, base)
        return {}


def _asked(body: bytes) -> tuple[str, Path]:
    try:
        told = json.loads(body)
        name, source = told["name"], told["source"]
    except (ValueError, TypeError, KeyError) as exc:
        raise faults.serialization("The body must be a JSON object with `name` and `source`") from exc
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise faults.validation("A base's name is as a FROM has it: 1 to 128 of a-z, A-Z, 0-9 and ._/:-")
    if not isinstance(source, str) or not source.startswith("/") or "\0" in source or not Path(source).exists():
        raise faults.validation("`source` must be the whole path of a folder or a tar")
    return name, Path(source)


def _document(base: Base) -> dict[str, Any]:
    return {
        "name": base.name,
        "source": base.source,
        "madeAt": base.made_at.isoformat(),
        "sizeBytes": base.size_bytes,
    }
