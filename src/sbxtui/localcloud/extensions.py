"""What is answered beside AWS's API, below `/sbx/`: each part by whoever knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sbxtui.localcloud.sigv4 import HttpRequest

PREFIX = "/sbx/"


class Extension(Protocol):
    """Answers requests whose signature was checked."""

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """The answer's document.

        Raises:
            Fault: What goes wrong, in the service's own shape.
        """
        ...


class Extensions:
    """Extensions by how their paths begin, the first that fits."""

    def __init__(self, by_prefix: Mapping[str, Extension]) -> None:
        self._by_prefix = dict(by_prefix)

    async def answer(self, request: HttpRequest) -> dict[str, Any]:
        """See `Extension.answer`."""
        fitting = next(one for prefix, one in self._by_prefix.items() if request.raw_path.startswith(prefix))
        return await fitting.answer(request)
