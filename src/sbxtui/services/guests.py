"""Reaching the guest of a sandbox: endpoint and token from the store, everything else only when those fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from sbxtui.core.errors import (
    Conflict,
    ConnectionLost,
    GuestUnreachable,
    SandboxEnded,
    SandboxNotFound,
    SbxError,
    Unsupported,
)
from sbxtui.core.isolation import require, tier_of
from sbxtui.core.model import (
    OLD_GUEST,
    VCPUS_BY_MEMORY_MIB,
    Context,
    Registration,
    SandboxRecord,
    SandboxState,
)
from sbxtui.core.text import reason_words
from sbxtui.core.usage import unnoticed_s
from sbxtui.guest.client import GuestClient
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.tokens import TokenService
from sbxtui.settings import Settings

if TYPE_CHECKING:
    from sbxtui.guest.files import GuestFiles
    from sbxtui.guest.tunnel import Tunnel, TunnelState
    from sbxtui.services.forward.webway import WebWay

# What the platform gives for each processor, and what commands and files need of it.
_CONNECTIONS_PER_VCPU = 8
_CONNECTIONS_KEPT = 2


class Guests:
    """Connects to guests of one context.

    Attributes:
        context_name: Which that is.
    """

    def __init__(self, settings: Settings, context: Context, planes: ControlPlanes, tokens: TokenService) -> None:
        self._settings = settings
        self.context_name = context.name
        self._context = context
        self._planes = planes
        self._tokens = tokens

    @asynccontextmanager
    async def connect(self, registration: Registration) -> AsyncIterator[GuestClient]:
        """A client of the sandbox's guest, closed on leaving.

        Raises:
            RuntimeUnavailable: It is isolated less than was asked for.
            Conflict: The sandbox is suspended and does not wake by itself.
            SandboxNotFound: It was terminated.
            GuestUnreachable: It runs, but its guest does not answer.
        """
        self.require_isolation(registration, registration.facts.get("isolation"))
        client = GuestClient(
            registration.endpoint,
            self._tokens.source(registration.id),
            port=self._settings.agent_port,
            verify=await self._planes.endpoint_tls(self._context),
            revive=partial(self._planes.revive, self._context),
            doubt=partial(self._check_there, registration),
        )
        async with client:
            try:
                yield client
            except GuestUnreachable as exc:
                raise await self.explain(registration, exc) from exc
            except (Conflict, SandboxNotFound) as exc:
                # The control plane gives no token for one that is ending, in words about the token.
                if "aws_code" not in exc.details:
                    raise
                raise await self.explain(registration, exc) from exc

    def require_isolation(self, registration: Registration, words: object) -> None:
        """Check how a sandbox says that it is isolated; one that says nothing was asked about at its launch.

        Raises:
            RuntimeUnavailable: That is less than was asked for.
        """
        if words:
            name = registration.name
            hint = f"see `sbx ps {name}`; a sandbox keeps what it was made with"
            require(self._settings.isolation, tier_of(str(words)), hint=hint, whose=f"`{name}`")

    @asynccontextmanager
    async def files(self, registration: Registration) -> AsyncIterator[GuestFiles]:
        """The sandbox's files, for as long as the block lasts; raises as `connect`.

        Raises:
            Unsupported: Its image has a v1 guest, which knows no file operations worth the name.
        """
        if speaks_v1(registration):
            raise Unsupported(
                f"the image of `{registration.name}` has an old guest without file operations",
                hint="`sbx exec` works; rebuild the image for the rest",
            )
        async with self.connect(registration) as guest:
            yield guest.files

    async def tunnel(
        self,
        registration: Registration,
        *,
        is_asleep: Callable[[], Awaitable[bool]],
        on_state: Callable[[TunnelState, str], None],
    ) -> Tunnel:
        """A tunnel to the sandbox's guest; nothing is connected before something is to carry. See `Tunnel`.

        Raises:
            RuntimeUnavailable: It is isolated less than was asked for.
        """
        from sbxtui.guest.tunnel import Tunnel

        self.require_isolation(registration, registration.facts.get("isolation"))
        return Tunnel(
            registration.endpoint,
            self._tokens.source(registration.id),
            port=self._settings.agent_port,
            verify=await self._planes.endpoint_tls(self._context),
            is_asleep=is_asleep,
            explain=partial(self.explain, registration),
            on_state=on_state,
        )

    async def has_tunnel(self, registration: Registration) -> bool:
        """Whether its guest has tunnels; a guest that nobody has spoken to yet is asked. Raises as `connect`."""
        if registration.facts.get("guest_version"):
            return not speaks_v1(registration)
        try:
            async with self.connect(registration) as guest:
                await guest.hello()
        except Unsupported:
            return False
        except GuestUnreachable as exc:
            # Its endpoint answers, and says that nothing listens where our guest would.
            if exc.details.get("http_status") == 502:
                return False
            raise
        return True

    async def web_way(self, registration: Registration, *, on_state: Callable[[TunnelState, str], None]) -> WebWay:
        """A way through the sandbox's endpoint; nothing is connected before a request comes. See `WebWay`.

        Raises:
            RuntimeUnavailable: It is isolated less than was asked for.
        """
        from sbxtui.services.forward.webway import WebWay

        self.require_isolation(registration, registration.facts.get("isolation"))
        memory_mib = registration.facts.get("memory_mib")
        vcpus = VCPUS_BY_MEMORY_MIB.get(memory_mib, 1) if isinstance(memory_mib, int) else 1
        return WebWay(
            registration.endpoint,
            lambda port: self._tokens.source(registration.id, (port,)),
            verify=await self._planes.endpoint_tls(self._context),
            connections=_CONNECTIONS_PER_VCPU * vcpus - _CONNECTIONS_KEPT,
            explain=partial(self.explain, registration),
            on_state=on_state,
            revive=partial(self._planes.revive, self._context),
        )

    @property
    def time_scale(self) -> float:
        """How much faster than the platform's its sandboxes' idle windows pass."""
        return self._planes.time_scale(self._context)

    async def state(self, registration: Registration) -> SandboxState:
        """Its state, as the control plane says now; asking wakes nothing.

        Raises:
            SandboxNotFound: It has ended, or never was.
        """
        plane = await self._planes.open(self._context)
        record = await plane.get(registration.id)
        if record.state.is_gone:
            raise _explanation(registration.name, record) or SandboxNotFound(f"`{registration.name}` is gone")
        return record.state

    def unnoticed_s(self, registration: Registration) -> float:
        """For how long after it last did something a sandbox may be asked without being kept awake; maybe for ever."""
        return unnoticed_s(registration.request.idle, self._planes.time_scale(self._context))

    async def runs(self, registration: Registration) -> bool:
        """Whether it runs, as the control plane says now; raises as `state`."""
        return await self.state(registration) is SandboxState.RUNNING

    async def _check_there(self, registration: Registration) -> None:
        """Check that a sandbox whose guest does not answer has not ended; a plane that does not answer says nothing.

        Raises:
            SandboxNotFound: It has.
        """
        try:
            await self.state(registration)
        except SandboxNotFound:
            raise
        except SbxError:
            return

    async def explain(self, registration: Registration, failure: SbxError) -> SbxError:
        """Why a guest did not answer, as its control plane knows it; `failure` itself when that cannot say more."""
        try:
            plane = await self._planes.open(self._context)
            record = await plane.get(registration.id)
        except SandboxNotFound:
            if isinstance(failure, ConnectionLost):
                return failure
            return SandboxNotFound(
                f"`{registration.name}` no longer exists in context `{self._context.name}`",
                hint=f"forget it with `sbx rm {registration.name}`",
            )
        except SbxError:
            return failure
        if isinstance(failure, ConnectionLost) and not record.state.is_gone:
            return failure
        return _explanation(registration.name, record) or failure


def speaks_v1(registration: Registration) -> bool:
    """Whether the sandbox's guest was found to answer the old contract only."""
    return registration.facts.get("guest_version") == OLD_GUEST


def _explanation(name: str, record: SandboxRecord) -> SbxError | None:
    match record.state:
        case SandboxState.SUSPENDED | SandboxState.SUSPENDING:
            return Conflict(f"`{name}` is suspended", hint=f"resume it with `sbx start {name}`")
        case SandboxState.TERMINATED | SandboxState.TERMINATING:
            words = reason_words(record.state_reason)
            reason = f": {words}" if words else ""
            return SandboxEnded(f"`{name}` was terminated{reason}", hint=f"forget it with `sbx rm {name}`")
        case _:
            return None
