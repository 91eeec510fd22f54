"""Opening the control plane of a context: AWS with the person's credentials, or the local cloud with its own."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sbxtui.control.local import LocalCloud, ensure_local_cloud, find_local_cloud, has_died
from sbxtui.core.errors import AccessDenied, SbxError, UsageError
from sbxtui.core.isolation import NO_SHORTFALL, Shortfall, check_wish, require
from sbxtui.core.model import Context, ContextKind
from sbxtui.settings import Settings
from sbxtui.store.contexts import Contexts

if TYPE_CHECKING:
    from sbxtui.control.api import ControlApi
    from sbxtui.control.credentials import StaticCredentials


class ControlPlanes:
    """Opens each context's control plane at most once and keeps it for the life of the face."""

    def __init__(self, settings: Settings, contexts: Contexts) -> None:
        self._settings = settings
        self._contexts = contexts
        self._open: dict[str, ControlApi] = {}
        self._checked: set[str] = set()
        self._tls: dict[tuple[str, int], ssl.SSLContext] = {}

    def context(self, name: str = "") -> Context:
        """The context that counts: the named one, else the setting, else the one in use, else `local`.

        Raises:
            NotFound: No context has that name.
            UsageError: A region was given that is not the context's: its names mean nothing there.
        """
        wanted = name or self._settings.context
        context = self._contexts.get(wanted) if wanted else self._contexts.current()
        if context.kind is ContextKind.LOCAL:
            return context
        if self._settings.region and context.region and self._settings.region != context.region:
            source = self._settings.sources.get("region", "the settings")
            raise UsageError(
                f"context `{context.name}` is for region {context.region}, but {source} says {self._settings.region}",
                hint=f"sbx context add NAME --region {self._settings.region} makes one for that region",
            )
        return replace(
            context,
            region=context.region or self._settings.region,
            profile=self._settings.profile or context.profile,
        )

    async def open(self, context: Context) -> ControlApi:
        """The context's control plane; starts the local cloud if that is meant and none serves now."""
        if context.kind is ContextKind.LOCAL:
            return await self._open_local(context)
        require(self._settings.isolation, "firecracker", hint="leave --isolation out for AWS contexts")
        if context.name not in self._open:
            self._open[context.name] = _control_api(context)
        return self._open[context.name]

    async def _open_local(self, context: Context) -> ControlApi:
        # Looked up each time, at the price of a small file: it may have been killed and come back elsewhere.
        cloud = await self.local_cloud()
        plane = self._open.get(context.name)
        if plane is None or plane.context.endpoint_url != cloud.endpoint_url:
            located = replace(
                context, region=cloud.region, endpoint_url=cloud.endpoint_url, account_id=cloud.account_id
            )
            plane = self._open[context.name] = _control_api(located, cloud.credentials)
        return plane

    async def open_for_change(self, context: Context) -> ControlApi:
        """Like `open`, after checking that the credentials belong to the account this context is for.

        Raises:
            AccessDenied: They belong to another account; nothing was changed.
        """
        plane = await self.open(context)
        await self.check_account(context)
        return plane

    async def check_account(self, context: Context) -> None:
        """Check, once per process, that the credentials belong to the account this context is for.

        Raises:
            AccessDenied: They belong to another account.
        """
        plane = await self.open(context)
        if context.kind is ContextKind.AWS and context.name not in self._checked:
            account_id = await plane.caller_account()
            if context.account_id and account_id != context.account_id:
                raise AccessDenied(
                    f"context `{context.name}` is for account {context.account_id}, "
                    f"but these credentials belong to {account_id}",
                    hint="choose other credentials, or make a context for that account with `sbx context add`",
                )
            if not context.account_id:
                await asyncio.to_thread(self._contexts.set_account, context.name, account_id)
            self._checked.add(context.name)

    async def local_cloud(self) -> LocalCloud:
        """The local cloud of this home, started when none serves.

        Raises:
            UsageError: What was asked for is no isolation.
        """
        wish = self._settings.isolation
        # A flag is about one sandbox; what is written down for good is about all.
        lasting = "" if self._settings.sources.get("isolation") == "flag" else wish
        cloud = await ensure_local_cloud(
            self._settings.home,
            time_scale=self._settings.time_scale,
            isolation=lasting,
            is_conformant=self._settings.local_conformance,
        )
        if wish:
            check_wish(wish)
        return cloud

    def time_scale(self, context: Context) -> float:
        """How much faster than the platform's the clock of a context's lifecycle windows runs: 1 but in tests."""
        if context.kind is not ContextKind.LOCAL:
            return 1.0
        cloud = find_local_cloud(self._settings.home)
        return cloud.time_scale if cloud else self._settings.time_scale

    async def revive(self, context: Context) -> None:
        """Start the local cloud again where it died: who is in the middle of a command need not wait for another face.

        One that was stopped stays so, and what cannot be started is told by who needs it next.
        """
        if context.kind is ContextKind.LOCAL and has_died(self._settings.home):
            with contextlib.suppress(SbxError):
                await self.local_cloud()

    def serves(self, context: Context) -> bool:
        """Whether it can be asked without being started for it."""
        return context.kind is not ContextKind.LOCAL or find_local_cloud(self._settings.home) is not None

    def isolation_words(self, context: Context) -> str:
        """The context's isolation in words; empty while the local cloud has not told it."""
        if context.kind is ContextKind.AWS:
            return context.isolation_words
        cloud = find_local_cloud(self._settings.home)
        return cloud.isolation if cloud else ""

    def isolation_shortfall(self, context: Context) -> Shortfall:
        """Why the context's sandboxes get less isolation than there is, as far as its local cloud has told it."""
        cloud = find_local_cloud(self._settings.home) if context.kind is ContextKind.LOCAL else None
        return cloud.shortfall if cloud else NO_SHORTFALL

    async def endpoint_tls(self, context: Context) -> ssl.SSLContext | bool:
        """How to verify the context's sandbox endpoints: our own CA locally, the system's on AWS."""
        if not self._settings.verify_tls:
            return False
        if context.kind is ContextKind.AWS:
            return self._kept_tls(("", 0), _system_tls)
        ca_file = (await self.local_cloud()).ca_file
        # A local cloud that was reset has another authority in the same place.
        made_at_ns = (await asyncio.to_thread(ca_file.stat)).st_mtime_ns
        return self._kept_tls((str(ca_file), made_at_ns), lambda: ssl.create_default_context(cafile=str(ca_file)))

    def _kept_tls(self, key: tuple[str, int], make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Reading a system's authorities takes as long as ten commands: once for the life of the face."""
        if key not in self._tls:
            self._tls[key] = make()
        return self._tls[key]


def _control_api(context: Context, credentials: StaticCredentials | None = None) -> ControlApi:
    # Imported here: with its endpoint and token at hand, a verb that talks to a guest asks no control plane.
    from sbxtui.control.api import ControlApi

    return ControlApi(context, credentials=credentials)


def _system_tls() -> ssl.SSLContext:
    """The authorities of the system or of SSL_CERT_FILE; a bare system has none, then those that come with boto3."""
    tls = ssl.create_default_context()
    if not tls.cert_store_stats()["x509_ca"]:
        import certifi

        tls.load_verify_locations(certifi.where())
    return tls
