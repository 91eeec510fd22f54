"""Finding the route of a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from sbxguest.app import WireError


class _Routed(Protocol):
    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...


_R = TypeVar("_R", bound=_Routed)


class Router(Generic[_R]):
    """Finds a route: by exact path, else segment by segment."""

    def __init__(self, routes: Iterable[_R]) -> None:
        self._exact: dict[str, dict[str, _R]] = {}
        self._patterns: list[tuple[list[str], dict[str, _R]]] = []
        for route in routes:
            self._methods_of(route.path)[route.method] = route

    def _methods_of(self, path: str) -> dict[str, _R]:
        if "{" not in path:
            return self._exact.setdefault(path, {})
        segments = path.split("/")
        for known, methods in self._patterns:
            if known == segments:
                return methods
        self._patterns.append((segments, {}))
        return self._patterns[-1][1]

    def find(self, method: str, path: str) -> tuple[_R, dict[str, str]]:
        """The route and its path parameters.

        Raises:
            WireError: 404 nothing is there; 405 something is, for other methods (HEAD is served as GET).
        """
        methods, params = self._match(path)
        route = methods.get(method) or (methods.get("GET") if method == "HEAD" else None)
        if route is not None:
            return route, params
        if methods:
            raise WireError(405, "method_not_allowed", f"{method} is not possible on {path[:200]}")
        raise WireError(
            404, "unsupported", f"this guest has no {path[:200]}", hint="an image with a newer guest may have it"
        )

    def _match(self, path: str) -> tuple[dict[str, _R], dict[str, str]]:
        if path in self._exact:
            return self._exact[path], {}
        parts = path.split("/")
        for segments, methods in self._patterns:
            if len(segments) != len(parts):
                continue
            params: dict[str, str] = {}
            for segment, part in zip(segments, parts, strict=True):
                if segment.startswith("{") and part:
                    params[segment[1:-1]] = part
                elif segment != part:
                    break
            else:
                return methods, params
        return {}, {}
