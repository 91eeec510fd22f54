"""Making a sandbox so that no crash can leave one nobody knows of.

The name, the exact request and its client token are in the store before RunMicrovm is called. Whoever finds the row
of a dead launcher replays it: the same token gives the same sandbox, never a second one. A row goes only when it is
sure that no machine stands behind it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sbxtui.control.api import ControlApi
from sbxtui.core.errors import (
    AccessDenied,
    Conflict,
    ImageNotFound,
    NameTaken,
    NotFound,
    PolicyDenied,
    QuotaExceeded,
    RuntimeUnavailable,
    SandboxEnded,
    SandboxNotFound,
    SbxError,
    Throttled,
    Unsupported,
    UsageError,
)
from sbxtui.core.model import OLD_GUEST, Context, ContextKind, Registration, SandboxRecord, SandboxState
from sbxtui.core.names import check_name, generate_name
from sbxtui.core.secrets import NewSecret
from sbxtui.core.text import iso, reason_words
from sbxtui.guest.client import GuestClient, Hello
from sbxtui.identity import own_identity
from sbxtui.services.defaults import LaunchDefaults
from sbxtui.services.guests import Guests
from sbxtui.services.leftovers import RETRY_AT, is_one_shot, is_unfinished
from sbxtui.services.network import apply_at_launch
from sbxtui.services.plan import CreateOptions, LaunchPlan, plan_launch
from sbxtui.services.planes import ControlPlanes
from sbxtui.services.secrets import Secrets
from sbxtui.settings import Settings
from sbxtui.store.registry import Registry
from sbxtui.store.turns import taken

__all__ = ["CreateOptions", "Launcher"]

log = logging.getLogger(__name__)

_READY_DEADLINE_S = 90.0
# Recovery runs before somebody's own command: it must not hold that up for long, and not every time.
_RECOVERY_DEADLINE_S = 15.0
_RETRY_AFTER = timedelta(minutes=5)
_WATCH_EVERY_S = 0.5
_CAN_BE_MADE_READY = (SandboxState.PENDING, SandboxState.RUNNING)
# Answers to a first RunMicrovm that mean that nothing was made. Others leave it open.
_REFUSALS = (UsageError, NotFound, AccessDenied, PolicyDenied, QuotaExceeded, RuntimeUnavailable, Unsupported)


async def nothing() -> None:
    """Makes no room."""


class Launcher:
    """Creates sandboxes of one context, and finishes or cleans up what a dead process began."""

    def __init__(
        self,
        settings: Settings,
        defaults: LaunchDefaults,
        context: Context,
        planes: ControlPlanes,
        registry: Registry,
        guests: Guests,
        secrets: Secrets,
        actor: str,
    ) -> None:
        self._settings = settings
        self._defaults = defaults
        self._context = context
        self._planes = planes
        self._registry = registry
        self._guests = guests
        self._secrets = secrets
        self._actor = actor

    async def create(
        self,
        name: str | None,
        options: CreateOptions,
        *,
        on_progress: Callable[[str], None] = lambda words: None,
        make_room: Callable[[], Awaitable[None]] = nothing,
        takes_back: bool = False,
    ) -> Registration:
        """Create a sandbox and wait until its guest answers.

        Args:
            name: Its name; None makes one up.
            options: What it shall be.
            on_progress: Told in words what is being done.
            make_room: Called once everything was checked, right before the name is taken.
            takes_back: When it fails, terminate what was made, too; else whoever looks after the end of this process
                finishes it.

        Returns:
            Its row, tracked and with its endpoint.

        Raises:
            UsageError: A name, size, network or secret that cannot be; nothing was made.
            NameTaken: Another sandbox of the context has that name.
            PolicyDenied: The context cannot enforce the network; nothing was made.
            SbxError: The launch failed. When the sandbox never came to be, its name is free again; cancelling
                terminates what was made.
        """
        if name is not None:
            check_name(name)
        plane = await self._planes.open_for_change(self._context)
        on_progress("looking up the image")
        plan = await plan_launch(self._settings, self._defaults, self._context, plane, options)
        await make_room()
        registration = await self._reserve(name, plan)
        on_progress(f"launching {registration.name}")
        try:
            bound = await self._run(plane, registration)
            on_progress(f"waiting for {registration.name} to answer")
            deadline_s = options.origin.ready_s if options.origin else _READY_DEADLINE_S
            return await self._make_ready(bound, deadline_s, options.secrets)
        except asyncio.CancelledError:
            await asyncio.shield(self._abandon(plane, registration, "cancelled while launching"))
            raise
        except SbxError as exc:
            if takes_back:
                await asyncio.shield(self._abandon(plane, registration, exc.message))
            raise

    async def recover(self) -> list[Registration]:
        """Finish the launches of dead processes; returns the sandboxes that are ready again because of it.

        What cannot be finished now stays a row, and is left alone for some minutes.
        """
        recovered = []
        for row in await asyncio.to_thread(self._unfinished):
            try:
                plane = await self._planes.open_for_change(self._context)
                if row.id and (await plane.get(row.id)).state not in _CAN_BE_MADE_READY:
                    # A suspended one is not woken, and billed, for what nobody is waiting for.
                    await self._put_off(row)
                    continue
                bound = row if row.id else await self._run(plane, row, is_replay=True)
                # A one-shot is only found again in order to be ended: nobody waits for it to answer.
                is_done = is_one_shot(bound)
                recovered.append(bound if is_done else await self._make_ready(bound, _RECOVERY_DEADLINE_S))
            except SbxError as exc:
                log.info("could not finish the launch of %s: %s", row.name, exc.message)
                if not row.id and self._never_was(exc):
                    await self._drop(row, exc.message)
                else:
                    await self._put_off(row)
        return recovered

    def _never_was(self, exc: SbxError) -> bool:
        """Whether a replay was refused for good: the local cloud looks for what the first call made before it looks at
        what it was to be made from, which may be gone by now.
        """
        return isinstance(exc, ImageNotFound) and self._context.kind is ContextKind.LOCAL

    def _unfinished(self) -> list[Registration]:
        """Launches whose process died, now ours: never answered, or answered without having got their environment."""
        owner, now = str(own_identity()), datetime.now(UTC)
        rows = [row for row in self._registry.list(self._context.name) if is_unfinished(row, now)]
        launches = [taken for row in rows if not row.id and (taken := self._registry.take_over(row, owner))]
        return launches + [row for row in rows if row.id]

    async def _put_off(self, row: Registration) -> None:
        facts = {RETRY_AT: iso(datetime.now(UTC) + _RETRY_AFTER)}
        try:
            await asyncio.to_thread(self._registry.change_facts, row.context, row.name, facts, actor=self._actor)
        except SandboxNotFound:
            return

    async def _reserve(self, name: str | None, plan: LaunchPlan) -> Registration:
        """Take the name; a cancel in between gives it back."""
        return await taken(
            lambda: self._reserve_now(name, plan), lambda row: self._drop_now(row, "cancelled before launching")
        )

    def _reserve_now(self, name: str | None, plan: LaunchPlan) -> Registration:
        if name is not None:
            return self._reserve_name(name, plan)
        while True:
            taken = {row.name for row in self._registry.list(self._context.name)}
            try:
                return self._reserve_name(generate_name(taken, random.choice), plan)
            except NameTaken:
                # Another process made up the same name between the look and the reservation.
                continue

    def _reserve_name(self, name: str, plan: LaunchPlan) -> Registration:
        return self._registry.reserve(
            context=self._context.name,
            name=name,
            request=plan.request(name),
            client_token=str(uuid.uuid4()),
            owner=str(own_identity()),
            labels=dict(plan.options.labels),
            actor=self._actor,
            facts=plan.facts(),
        )

    async def _run(self, plane: ControlApi, registration: Registration, *, is_replay: bool = False) -> Registration:
        """Call RunMicrovm for a reserved row and bind the answer to it; a refusal of a first call frees the name."""
        try:
            record = await plane.run(registration.request, client_token=registration.client_token)
        except SbxError as exc:
            # Anything less than a plain refusal, and any answer to a replay, may hide a machine that runs.
            if not is_replay and isinstance(exc, _REFUSALS) and not isinstance(exc, Throttled):
                await self._drop(registration, f"launch refused: {exc.message}")
            raise
        try:
            return await asyncio.to_thread(self._bind, registration, record)
        except SandboxNotFound:
            # Its name was removed while it was being launched: nobody wants it.
            await plane.terminate(record.id)
            raise

    async def _make_ready(
        self, registration: Registration, deadline_s: float, secrets: Sequence[NewSecret] = ()
    ) -> Registration:
        await self._check_secrets_are_known(registration, secrets)
        try:
            async with self._guests.connect(registration) as guest:
                told = await self._introduce(registration, guest, deadline_s)
                await self._give(registration, secrets)
        except SandboxEnded as exc:
            await self._drop(registration, exc.message)
            raise
        changes = {"launch": None, RETRY_AT: None, **told}
        return await asyncio.to_thread(
            self._registry.change_facts, registration.context, registration.name, changes, actor=self._actor
        )

    async def _introduce(self, registration: Registration, guest: GuestClient, deadline_s: float) -> dict[str, object]:
        """Wait for the guest, hand it the launch environment and return the facts it told."""
        launch = registration.facts.get("launch")
        given: dict[str, Any] = launch if isinstance(launch, dict) else {"env": {}, "workdir": ""}
        try:
            hello = await self._first_hello(registration, guest, deadline_s)
        except Unsupported:
            if not given["env"]:
                return {"guest_version": OLD_GUEST}
            await self._end(registration, "its guest takes no environment")
            raise
        try:
            # Another local cloud may have taken over between the look at it and the launch.
            self._guests.require_isolation(registration, hello.isolation)
        except RuntimeUnavailable as exc:
            await self._end(registration, exc.message)
            raise
        await apply_at_launch(self._planes, registration)
        try:
            await guest.launch(env=given["env"], workdir=given["workdir"], keeps_env=bool(given.get("keeps_env")))
        except UsageError as exc:
            await self._end(registration, f"its guest refused how it was to be launched: {exc.message}")
            raise
        workdir = given["workdir"] or hello.workdir
        return {"guest_version": hello.guest_version, "isolation": hello.isolation, "workdir": workdir}

    async def _check_secrets_are_known(self, registration: Registration, secrets: Sequence[NewSecret]) -> None:
        """Values are written down nowhere: one that was to have secrets cannot be finished by another process."""
        launch = registration.facts.get("launch")
        if isinstance(launch, dict) and launch.get("secrets") and not secrets:
            words = "only the process that launched it knew its secrets, and that is gone"
            await self._end(registration, words)
            raise Conflict(f"`{registration.name}` was taken back: {words}", hint="make it again")

    async def _give(self, registration: Registration, secrets: Sequence[NewSecret]) -> None:
        try:
            for secret in secrets:
                await self._secrets.set(registration, secret.key, secret.value, secret.hosts)
        except SbxError as exc:
            await self._end(registration, f"a secret could not be given: {exc.message}")
            raise

    def _bind(self, registration: Registration, record: SandboxRecord) -> Registration:
        return self._registry.bind(
            registration.context,
            registration.name,
            record,
            actor=self._actor,
            client_token=registration.client_token,
        )

    async def _first_hello(self, registration: Registration, guest: GuestClient, deadline_s: float) -> Hello:
        """Wait for the guest while watching that its sandbox still lives: a dead one is known before the deadline."""
        ready = asyncio.ensure_future(guest.wait_until_ready(timeout_s=deadline_s))
        death = asyncio.ensure_future(self._until_gone(registration))
        try:
            await asyncio.wait((ready, death), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                return ready.result()
            raise SandboxEnded(
                f"`{registration.name}` ended while it was starting: {death.result()}",
                hint="`sbx doctor` checks the runtime",
            )
        finally:
            for task in (ready, death):
                task.cancel()
            await asyncio.gather(ready, death, return_exceptions=True)

    async def _until_gone(self, registration: Registration) -> str:
        """Why the sandbox ended, once its record says so. A failed look, even "not found", says nothing: they lag."""
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            try:
                plane = await self._planes.open(self._context)
                record = await plane.get(registration.id)
            except SbxError:
                continue
            # One that is ending may tell why only once it has.
            if record.state is SandboxState.TERMINATED or (record.state.is_gone and record.state_reason):
                return reason_words(record.state_reason or "") or "its time was up, or somebody ended it"

    async def _drop(self, registration: Registration, reason: str) -> None:
        await asyncio.to_thread(self._drop_now, registration, reason)

    def _drop_now(self, registration: Registration, reason: str) -> None:
        self._registry.remove_row(registration, actor=self._actor, reason=reason)

    async def _end(self, registration: Registration, reason: str) -> None:
        """Take back a sandbox that will never be what was asked for."""
        plane = await self._planes.open(self._context)
        await plane.terminate(registration.id)
        await self._drop(registration, reason)

    async def _abandon(self, plane: ControlApi, registration: Registration, why: str) -> None:
        """Take back a launch its person no longer wants. What cannot be taken back now stays a row for recovery."""
        try:
            row = await asyncio.to_thread(self._registry.get, registration.context, registration.name)
        except SandboxNotFound:
            # What failed has taken it back already.
            return
        try:
            # The same token gives the sandbox that the cut call may have made, so that it can be ended.
            bound = row if row.id else await self._run(plane, row)
            await plane.terminate(bound.id)
            await self._drop(bound, why)
        except SbxError as exc:
            log.warning("could not take back the launch of %s: %s", registration.name, exc.message)
