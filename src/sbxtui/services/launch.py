"""Making a sandbox so that no crash can leave one nobody knows of.

The name, the exact request and its client token are in the store before RunMicrovm is called. Whoever finds the row
of a dead launcher replays it: the same token gives the same sandbox, never a second one.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import logging
import random
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sbxtui.control.api import ControlApi
from sbxtui.core.errors import Conflict, NameTaken, NotFound, SandboxNotFound, SbxError, Unavailable
from sbxtui.core.model import (
    Context,
    ContextKind,
    IdlePolicy,
    ImageVersion,
    LaunchRequest,
    Registration,
    SandboxRecord,
)
from sbxtui.core.names import check_name, generate_name
from sbxtui.core.sizing import check_cpus, check_memory_mib, check_network, sized_image_name
from sbxtui.guest.client import GuestClient, Hello
from sbxtui.identity import own_identity
from sbxtui.services.defaults import LaunchDefaults
from sbxtui.services.guests import Guests
from sbxtui.services.images import active_version, image_arn
from sbxtui.services.leftovers import is_unfinished
from sbxtui.services.planes import ControlPlanes
from sbxtui.settings import Settings
from sbxtui.store.registry import Registry

log = logging.getLogger(__name__)

_READY_DEADLINE_S = 90.0
_WATCH_EVERY_S = 0.5
_AWS_IDLE = IdlePolicy(max_idle_s=900, suspended_s=28_800)
_SUSPENDED_S = 28_800
_MAX_DURATION_S = 28_800


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """What a person may ask for; empty or 0 means the default. `env` goes to the guest, not into the launch payload."""

    image: str = ""
    role: str = ""
    memory_mib: int = 0
    cpus: int = 0
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    idle_s: int = 0
    max_duration_s: int = 0
    network: str = ""
    egress_connectors: tuple[str, ...] = ()
    ingress_connectors: tuple[str, ...] = ()
    workdir: str = ""
    purpose: str = ""


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
        actor: str,
    ) -> None:
        self._settings = settings
        self._defaults = defaults
        self._context = context
        self._planes = planes
        self._registry = registry
        self._guests = guests
        self._actor = actor

    async def create(
        self, name: str | None, options: CreateOptions, *, on_progress: Callable[[str], None] = lambda words: None
    ) -> Registration:
        """Create a sandbox and wait until its guest answers.

        Args:
            name: Its name; None makes one up.
            options: What it shall be.
            on_progress: Told in words what is being done.

        Returns:
            Its row, tracked and with its endpoint.

        Raises:
            UsageError: A name, size or network that cannot be; nothing was made.
            NameTaken: Another sandbox of the context has that name.
            PolicyDenied: The context cannot enforce the network; nothing was made.
            SbxError: The launch failed. When the sandbox never came to be, its name is free again; cancelling
                terminates what was made.
        """
        if name is not None:
            check_name(name)
        network = check_network(options.network, self._context.kind, options.egress_connectors)
        if options.memory_mib:
            check_memory_mib(options.memory_mib)
        plane = await self._planes.open_for_change(self._context)
        on_progress("looking up the image")
        version = await self._image_version(plane, options)
        registration = await asyncio.to_thread(self._reserve, name, options, version, network)
        on_progress(f"launching {registration.name}")
        try:
            bound = await self._run(plane, registration)
            return await self._make_ready(bound, on_progress)
        except asyncio.CancelledError:
            await asyncio.shield(self._abandon(plane, registration))
            raise

    async def recover(self) -> list[Registration]:
        """Finish the launches of dead processes; returns the sandboxes that are tracked again because of it.

        A launch the control plane refuses is dropped, one it cannot be asked about stays for the next recovery.
        """
        recovered = []
        for row in await asyncio.to_thread(self._unfinished):
            try:
                plane = await self._planes.open_for_change(self._context)
                bound = row if row.id else await self._run(plane, row)
                recovered.append(await self._make_ready(bound, lambda words: None))
            except SbxError as exc:
                log.info("could not finish the launch of %s: %s", row.name, exc.message)
        return recovered

    def _unfinished(self) -> list[Registration]:
        """Launches whose process died, now ours: never answered, or answered without having got their environment."""
        owner = str(own_identity())
        dead = self._registry.dead_launches(self._context.name)
        ours = [taken for launch in dead if (taken := self._registry.take_over(launch, owner))]
        rows = self._registry.list(self._context.name)
        return ours + [row for row in rows if row.id and is_unfinished(row)]

    async def _image_version(self, plane: ControlApi, options: CreateOptions) -> ImageVersion:
        """The image version a launch would use, checked against the size that was asked for."""
        image = options.image or self._defaults.image
        memory_mib = options.memory_mib or (0 if options.image else self._settings.memory_mib)
        if image.startswith("arn:"):
            version = await active_version(plane, image)
            if memory_mib and version.memory_mib not in (0, memory_mib):
                raise Conflict(
                    f"image `{image}` has {version.memory_mib} MiB of memory, not {memory_mib}",
                    hint="memory is a property of an image: leave --memory out, or choose another image",
                )
        else:
            arn = await image_arn(plane, sized_image_name(image, memory_mib))
            version = await active_version(plane, arn)
        if options.cpus and version.memory_mib:
            check_cpus(options.cpus, version.memory_mib)
        return version

    def _reserve(self, name: str | None, options: CreateOptions, version: ImageVersion, network: str) -> Registration:
        if name is not None:
            return self._reserve_name(name, options, version, network)
        while True:
            taken = {row.name for row in self._registry.list(self._context.name)}
            try:
                return self._reserve_name(generate_name(taken, random.choice), options, version, network)
            except NameTaken:
                # Another process made up the same name between the look and the reservation.
                continue

    def _reserve_name(self, name: str, options: CreateOptions, version: ImageVersion, network: str) -> Registration:
        env = {**self._settings.env, **options.env}
        return self._registry.reserve(
            context=self._context.name,
            name=name,
            request=self._request(name, options, version),
            client_token=str(uuid.uuid4()),
            owner=str(own_identity()),
            labels=dict(options.labels),
            actor=self._actor,
            facts={
                "purpose": options.purpose,
                "network": network,
                "memory_mib": version.memory_mib,
                # Kept until the guest has it, so that a replay after a crash gives the sandbox the same environment.
                "launch": {"env": env, "workdir": options.workdir or self._settings.workdir},
            },
        )

    def _request(self, name: str, options: CreateOptions, version: ImageVersion) -> LaunchRequest:
        is_aws = self._context.kind is ContextKind.AWS
        idle = IdlePolicy(options.idle_s, _SUSPENDED_S) if options.idle_s else _AWS_IDLE if is_aws else None
        return LaunchRequest(
            image_arn=version.arn,
            image_version=version.version,
            execution_role_arn=options.role or self._defaults.role,
            idle=idle,
            max_duration_s=options.max_duration_s or (_MAX_DURATION_S if is_aws else None),
            ingress_connectors=options.ingress_connectors,
            egress_connectors=options.egress_connectors,
            # The platform refuses a payload for an image without the run hook.
            payload=_identity(name, options.purpose) if "run" in version.hooks else "",
        )

    async def _run(self, plane: ControlApi, registration: Registration) -> Registration:
        """Call RunMicrovm for a reserved row and bind the answer to it; a refusal frees the name."""
        try:
            record = await plane.run(registration.request, client_token=registration.client_token)
        except Unavailable:
            # It may have been launched: the row stays, and the next sbx replays it.
            raise
        except SbxError as exc:
            await self._drop(registration, f"launch refused: {exc.message}")
            raise
        try:
            return await asyncio.to_thread(self._bind, registration, record)
        except SandboxNotFound:
            # Its name was removed while it was being launched: nobody wants it.
            await plane.terminate(record.id)
            raise

    async def _make_ready(self, registration: Registration, on_progress: Callable[[str], None]) -> Registration:
        on_progress(f"waiting for {registration.name} to answer")
        try:
            async with self._guests.connect(registration) as guest:
                hello = await self._first_hello(registration, guest)
                launch = registration.facts.get("launch")
                if isinstance(launch, dict):
                    await guest.launch(env=launch["env"], workdir=launch["workdir"])
        except NotFound as exc:
            await self._drop(registration, exc.message)
            raise
        changes = {"launch": None, "guest_version": hello.guest_version, "isolation": hello.isolation}
        return await asyncio.to_thread(
            self._registry.change_facts, registration.context, registration.name, changes, actor=self._actor
        )

    def _bind(self, registration: Registration, record: SandboxRecord) -> Registration:
        return self._registry.bind(
            registration.context,
            registration.name,
            record,
            actor=self._actor,
            client_token=registration.client_token,
        )

    async def _first_hello(self, registration: Registration, guest: GuestClient) -> Hello:
        """Wait for the guest while watching that its sandbox still lives: a dead one is known before the deadline."""
        ready = asyncio.ensure_future(guest.wait_until_ready(timeout_s=_READY_DEADLINE_S))
        death = asyncio.ensure_future(self._until_gone(registration))
        try:
            await asyncio.wait((ready, death), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                return ready.result()
            raise NotFound(
                f"`{registration.name}` ended while it was starting: {death.result()}",
                hint="`sbx doctor` checks the runtime",
            )
        finally:
            for task in (ready, death):
                task.cancel()
            await asyncio.gather(ready, death, return_exceptions=True)

    async def _until_gone(self, registration: Registration) -> str:
        """Why the sandbox ended, once it did. A control plane that is away for a moment says nothing about it."""
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            try:
                plane = await self._planes.open(self._context)
                record = await plane.get(registration.id)
            except Unavailable:
                continue
            if record.state.is_gone:
                return record.state_reason or "no reason given"

    async def _drop(self, registration: Registration, reason: str) -> None:
        await asyncio.to_thread(
            self._registry.remove, registration.context, registration.name, actor=self._actor, reason=reason
        )

    async def _abandon(self, plane: ControlApi, registration: Registration) -> None:
        """Take back a launch its person no longer wants. What cannot be taken back now stays a row for recovery."""
        try:
            row = await asyncio.to_thread(self._registry.get, registration.context, registration.name)
            # The same token gives the sandbox that the cut call may have made, so that it can be ended.
            bound = row if row.id else await self._run(plane, row)
            await plane.terminate(bound.id)
            await self._drop(bound, "cancelled while launching")
        except SbxError as exc:
            log.warning("could not take back the launch of %s: %s", registration.name, exc.message)


def _identity(name: str, purpose: str) -> str:
    """What the guest is told about itself, so that another machine can rebuild the list from it."""
    owner = f"{getpass.getuser()}@{socket.gethostname()}"
    identity = {"v": 1, "name": name, "owner": owner, "purpose": purpose}
    return json.dumps(identity, separators=(",", ":"), sort_keys=True)
