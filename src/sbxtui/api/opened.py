"""A sandbox that a program holds: its row, the services that reach it, and what closing means."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator

from sbxtui.core.errors import Conflict, SandboxEnded, SbxError
from sbxtui.core.model import Registration
from sbxtui.settings import Settings, load
from sbxtui.wiring import Services

_ACTOR = "python:you"


class Opened:
    """What every part of a sandbox's API stands on. Closed, it raises `Conflict`; ended, `SandboxEnded`."""

    def __init__(self, services: Services, row: Registration, *, is_ours: bool) -> None:
        self._open_services: Services | None = services
        self._row = row
        self._is_ours = is_ours
        self._has_ended = False

    @property
    def name(self) -> str:
        """Its name here."""
        return self._row.name

    @property
    def id(self) -> str:
        """Its id at the control plane."""
        return self._row.id

    @property
    def endpoint(self) -> str:
        """Host and port of its endpoint, without a scheme."""
        return self._row.endpoint

    def close(self) -> None:
        """Let go of it; the sandbox itself is left as it is. Closing twice is harmless."""
        services, self._open_services = self._open_services, None
        if services is not None:
            services.close()

    @property
    def _services(self) -> Services:
        if self._open_services is None:
            raise self._closed()
        return self._open_services

    def _closed(self) -> SbxError:
        if self._has_ended:
            return SandboxEnded(f"`{self.name}` was terminated", hint="`create` makes another")
        return Conflict(f"this object of `{self.name}` is closed", hint=f'`attach("{self.name}")` gives another')

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.id}>"


@contextlib.asynccontextmanager
async def opened_services(region: str, context: str) -> AsyncIterator[Services]:
    """Services for one sandbox; closed when it could not be had."""
    services = Services(_settings(region), actor=_ACTOR, context_name=context)
    try:
        yield services
    except BaseException:
        services.close()
        raise


def _settings(region: str) -> Settings:
    settings = load()
    if not region:
        return settings
    return dataclasses.replace(settings, region=region, sources={**settings.sources, "region": "the call"})
