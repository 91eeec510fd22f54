"""Snapshots of sandboxes, new sandboxes from them, and forks: a second sandbox that goes on from where one is now.

On the local cloud each is an image to the API, so a new sandbox is launched from one as from any other, and a launch
that a crash cut short is finished as any other.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sbxtui.control.extension import ask_local_cloud
from sbxtui.core.errors import NotFound, Unsupported
from sbxtui.core.isolation import tier_of
from sbxtui.core.model import Context, ContextKind, Registration
from sbxtui.core.names import check_name
from sbxtui.core.text import harmless_line
from sbxtui.services.activity import noted
from sbxtui.services.images import image_arn
from sbxtui.services.launch import CreateOptions, Launcher, nothing
from sbxtui.services.plan import Origin
from sbxtui.services.planes import ControlPlanes
from sbxtui.store.events import Events

# Copying files takes as long as there are files.
_COPY_S = 900.0
_SHOWN = 5
# Longer stems leave no room for a number.
_STEM_CHARS = 56
_MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a sandbox under a name. `kind` is `memory`, with processes in it, or `files`.

    `image` is the name of the image of the sandbox it is of, which was called `sandbox` then.
    """

    name: str
    kind: str
    image: str
    isolation: str
    sandbox: str
    sandbox_id: str
    created_at: datetime
    size_bytes: int

    @property
    def has_processes(self) -> bool:
        """Whether a sandbox made from it goes on with the processes of the other."""
        return self.kind == _MEMORY


class Snapshots:
    """Copies of one context's sandboxes. On AWS there are none: every method says so."""

    def __init__(self, context: Context, planes: ControlPlanes, events: Events, launcher: Launcher, actor: str) -> None:
        self._context = context
        self._planes = planes
        self._events = events
        self._launcher = launcher
        self._actor = actor

    async def create(self, row: Registration, name: str | None = None) -> Snapshot:
        """Copy a sandbox as it stands; but for a moment, it goes on meanwhile.

        Args:
            row: Running or suspended.
            name: What to call the snapshot; None: after the sandbox, with a number.

        Raises:
            Unsupported: The context has no snapshots.
            Conflict: A snapshot has that name, or the sandbox is in no state to be copied.
        """
        self._check_local()
        name = check_name(name) if name is not None else await self._free_name(row.name)
        async with noted(self._events, row, "sandbox.snapshot", self._actor, {"snapshot": name}):
            body = {"sandbox": row.id, "name": row.name}
            return _snapshot_of(await self._ask("PUT", f"/{name}", body=body, wait_s=_COPY_S))

    async def list(self) -> builtins.list[Snapshot]:
        """All of the context's, by name.

        Raises:
            Unsupported: The context has no snapshots.
        """
        self._check_local()
        return [_snapshot_of(raw) for raw in (await self._ask("GET", ""))["snapshots"]]

    async def find(self, name: str) -> Snapshot:
        """The snapshot of that name.

        Raises:
            NotFound: There is none; the hint tells which there are.
        """
        known = await self.list()
        for snapshot in known:
            if snapshot.name == name:
                return snapshot
        raise _no_snapshot(name, [one.name for one in known])

    async def remove(self, snapshot: Snapshot) -> None:
        """Delete a snapshot; sandboxes that were made from it live on.

        Raises:
            NotFound: It is gone already.
        """
        await self._ask("DELETE", f"/{snapshot.name}")
        await asyncio.to_thread(
            self._events.record,
            context=self._context.name,
            kind="snapshot.removed",
            subject=snapshot.name,
            actor=self._actor,
            data={"sandbox": snapshot.sandbox, "id": snapshot.sandbox_id},
        )

    async def restore(
        self,
        snapshot: Snapshot,
        name: str | None,
        options: CreateOptions,
        *,
        on_progress: Callable[[str], None] = lambda words: None,
        make_room: Callable[[], Awaitable[None]] = nothing,
    ) -> Registration:
        """Make a sandbox that goes on from a snapshot; raises as `Launcher.create`."""
        facts = {"snapshot": snapshot.name}
        origin = await self._origin(facts, snapshot.image, has_memory=snapshot.has_processes)
        asked = replace(options, image=await self._image(f"sbx-snapshot-{snapshot.name}"), origin=origin)
        return await self._launcher.create(name, asked, on_progress=on_progress, make_room=make_room)

    async def fork(
        self,
        row: Registration,
        name: str | None,
        options: CreateOptions,
        *,
        on_progress: Callable[[str], None] = lambda words: None,
    ) -> Registration:
        """Make a second sandbox that goes on from where one is now; but for a moment, that one goes on as well.

        It is another sandbox: id, name, boot id, randomness and tokens are its own, and it has no secrets. It may reach
        what the first one may, unless `options` say otherwise.

        Raises:
            Unsupported: The context has no forks. Others as `Launcher.create`.
        """
        self._check_local()
        has_memory = has_processes(row)
        facts: dict[str, object] = {"forked_from": row.name}
        if has_memory:
            facts["env_names"] = sorted({*_names(row.facts.get("env_names")), *options.env})
        origin = await self._origin(facts, row.request.image_arn, has_memory=has_memory)
        asked = replace(options, image=await self._image(f"sbx-fork-{row.id}"), origin=origin)
        asked = _with_what_it_had(asked, row, has_memory=has_memory)
        async with noted(self._events, row, "sandbox.fork", self._actor, {"to": name or ""}):
            return await self._launcher.create(name, asked, on_progress=on_progress)

    async def _origin(self, facts: Mapping[str, object], image: str, *, has_memory: bool) -> Origin:
        arn = image if image.startswith("arn:") else await self._image(image)
        return Origin({"image_arn": arn, **facts}, has_memory=has_memory, ready_s=_COPY_S)

    async def _image(self, name: str) -> str:
        return await image_arn(await self._planes.open(self._context), name)

    async def _free_name(self, stem: str) -> str:
        taken = {one.name for one in await self.list()}
        names = (f"{stem[:_STEM_CHARS]}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in taken)

    def _check_local(self) -> None:
        if self._context.kind is not ContextKind.LOCAL:
            raise Unsupported(
                f"context `{self._context.name}` has no snapshots and no forks: the platform does not copy sandboxes",
                hint="`sbx stop` keeps one as it is; `sbx cp` and `sbx sync` take its files to another",
            )

    async def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        cloud = await self._planes.local_cloud()
        return await ask_local_cloud(cloud, method, f"/snapshots{path}", **more)


def has_processes(row: Registration) -> bool:
    """Whether a copy of a sandbox has its processes in it; else its files are all that is copied."""
    return tier_of(str(row.facts.get("isolation") or "")) == "gvisor"


def _with_what_it_had(options: CreateOptions, row: Registration, *, has_memory: bool) -> CreateOptions:
    """The network and the working folder of a sandbox, where nothing else was asked for."""
    network = str(row.facts.get("network") or "")
    if network.startswith("allow=") or network == "internet":
        options = replace(options, network=options.network or network)
    workdir = str(row.facts.get("workdir") or "")
    return options if has_memory else replace(options, workdir=options.workdir or workdir)


def _names(told: object) -> Sequence[str]:
    return [str(one) for one in told] if isinstance(told, list) else []


def _snapshot_of(raw: Mapping[str, Any]) -> Snapshot:
    def words(name: str) -> str:
        return harmless_line(str(raw.get(name, "")))

    return Snapshot(
        name=words("name"),
        kind=words("kind"),
        image=words("image"),
        isolation=words("isolation"),
        sandbox=words("sandbox"),
        sandbox_id=words("sandboxId"),
        created_at=datetime.fromisoformat(raw["createdAt"]),
        size_bytes=int(raw["sizeBytes"]),
    )


def _no_snapshot(name: str, known: Sequence[str]) -> NotFound:
    shown = ", ".join(f"`{one}`" for one in known[:_SHOWN])
    hint = f"there are {shown}" if shown else "`sbx snapshot create SANDBOX` makes one"
    return NotFound(f"there is no snapshot `{harmless_line(name)}`", hint=hint)
