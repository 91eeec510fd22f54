"""A cloud in memory behind the shape of `Services`, for pilot tests of the dashboard that must be fast.

It keeps the promises of the real services that the dashboard relies on: one list call, UNKNOWN with an error when it
cannot be asked, a name that may mean another sandbox later. The same flows run on the real services in their own tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import cast

from sbxtui.core.errors import NameTaken, SandboxNotFound, SbxError
from sbxtui.core.isolation import NO_SHORTFALL, Shortfall
from sbxtui.core.jobs import Channel, Job, JobOutput, JobPiece
from sbxtui.core.model import (
    OLD_GUEST,
    Context,
    ContextKind,
    ContextName,
    ExecResult,
    LaunchRequest,
    Phase,
    Registration,
    Sandbox,
    SandboxId,
    SandboxRecord,
    SandboxState,
)
from sbxtui.core.threads import work_beside
from sbxtui.home import Home
from sbxtui.services.alarms import Alarms
from sbxtui.services.inventory import Inventory
from sbxtui.services.joblist import JobListing
from sbxtui.services.jobs import Command
from sbxtui.services.launch import CreateOptions
from sbxtui.services.watch import Watch
from sbxtui.settings import Settings
from sbxtui.store.clients import Clients
from sbxtui.store.db import Store
from sbxtui.store.events import Events
from sbxtui.store.links import Links
from sbxtui.wiring import Services
from tests.support.fake_copies import FakeCopies, FakeSecrets
from tests.support.fake_living import FakeBudgets, FakeKeepAwake
from tests.support.fake_ports import FakePortDesk
from tests.support.fake_seeing import FakeSeeing
from tests.support.fake_sync import FakeDesk
from tests.support.local_files import LocalFiles

LOCAL = Context(ContextName("local"), ContextKind.LOCAL, region="local-1")
OnOutput = Callable[[str, bytes], Awaitable[None]]


def now() -> datetime:
    """The present instant."""
    return datetime.now(UTC)


def home_at(root: Path) -> Home:
    """A home in a folder of a test."""
    return Home(root / "config", root / "state", root / "cache", root / "logs")


def sandbox(name: str, state: SandboxState = SandboxState.RUNNING, **changes: object) -> Sandbox:
    """A sandbox as a list shows it, made an hour ago."""
    made = Sandbox(
        context=LOCAL.name,
        name=name,
        id=SandboxId(f"mvm-{name or 'stranger'}"),
        state=state,
        image_arn="arn:aws:lambda:local-1:000000000000:microvm-image:sbx-base-2048",
        image_version="1.0",
        created_at=now() - timedelta(hours=1),
        endpoint="127.0.0.1:40001",
        # Its guest is an old one, which runs commands and keeps nothing of them: `run` is all it needs.
        facts={"network": "none", "memory_mib": 2048, "guest_version": OLD_GUEST} if name else {},
        seen_at=now(),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields by name


@dataclass
class FakeCloud:
    """What exists, and how it behaves: `error` makes it unreachable, `run` decides what commands print."""

    context: Context = LOCAL
    sandboxes: list[Sandbox] = field(default_factory=list)
    error: SbxError | None = None
    opening_error: SbxError | None = None
    isolation: str = "namespaces — shared kernel"
    shortfall: Shortfall = NO_SHORTFALL
    change_error: SbxError | None = None
    looks: int = 0
    run: Callable[[str, OnOutput], Awaitable[int]] | None = None
    # Holds every answer back until it is set.
    gate: asyncio.Event | None = None
    created: list[tuple[str | None, CreateOptions]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    # What runs in a sandbox, by its name; None: its guest does not answer.
    running: dict[str, list[Job] | None] = field(default_factory=dict)
    # A folder of this machine that stands for the sandbox's root.
    files_root: Path | None = None
    desk: FakeDesk = field(default_factory=FakeDesk)
    ports: FakePortDesk = field(default_factory=FakePortDesk)
    seeing: FakeSeeing = field(default_factory=FakeSeeing)
    secrets: FakeSecrets = field(default_factory=FakeSecrets)


class FakeServices:
    """The parts of `Services` that the dashboard uses."""

    actor = "tui:you"

    def __init__(self, settings: Settings, cloud: FakeCloud, clouds: Sequence[FakeCloud] = ()) -> None:
        self.settings = settings
        self.contexts = _Contexts(clouds or [cloud])
        self._cloud = cloud
        self.inventories = _Inventories(cloud)
        self.watch = Watch(settings.home, self.inventories)  # type: ignore[arg-type]  # the same two methods
        self.planes = _Planes(cloud)
        self.launcher = _Launcher(cloud)
        self.sandboxes = FakeSandboxes(cloud)
        self.jobs = _Jobs(cloud)
        self.job_lists = _JobLists(cloud)
        self.job_watch = _JobWatch(self.job_lists)
        self.sync_desk = cloud.desk
        self.port_desk = cloud.ports
        self.logs = self.cloud_logs = self.metrics = cloud.seeing
        self.keep_awake = FakeKeepAwake(cloud.done)
        self.budgets = FakeBudgets(cloud.done)
        self.snapshots = FakeCopies(self._made)
        self.secrets = cloud.secrets
        self.files = LocalFiles(cloud.files_root or settings.home.cache_dir)

    @property
    def context(self) -> Context:
        """The context, or the reason why the store cannot be opened."""
        if self._cloud.opening_error is not None:
            raise self._cloud.opening_error
        return self._cloud.context

    @cached_property
    def store(self) -> Store:
        """A real store: what the dashboard reads of it is no part of the cloud."""
        return Store.open(self.settings.home, clock=lambda: now())

    @cached_property
    def events(self) -> Events:
        """Who did what."""
        return Events(self.store)

    @cached_property
    def clients(self) -> Clients:
        """Agents that are connected."""
        return Clients(self.store)

    @cached_property
    def links(self) -> Links:
        """What is kept true."""
        return Links(self.store)

    @cached_property
    def alarms(self) -> Alarms:
        """What of that is trouble."""
        return Alarms(self.settings.home, self.events, self.settings.watch.hook)

    def _made(self, name: str | None) -> Registration:
        made = sandbox(name or "calm-otter", created_at=now())
        self._cloud.sandboxes.append(made)
        return _row(made)

    def close(self) -> None:
        """Close the store."""
        if "store" in self.__dict__:
            self.store.close()


def services_for(root: Path, cloud: FakeCloud, *others: FakeCloud) -> Callable[[str], Services]:
    """A factory as `run_dashboard` takes it; `others` are the clouds of other contexts."""
    settings = Settings(home=home_at(root))
    clouds = {str(one.context.name): one for one in (cloud, *others)}
    return lambda name: cast(Services, FakeServices(settings, clouds[name] if name else cloud, list(clouds.values())))


class _Contexts:
    def __init__(self, clouds: Sequence[FakeCloud]) -> None:
        self._clouds = clouds

    def list(self) -> list[Context]:
        return [cloud.context for cloud in self._clouds]


class _Planes:
    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    def isolation_words(self, context: Context) -> str:
        return self._cloud.isolation

    def isolation_shortfall(self, context: Context) -> Shortfall:
        return self._cloud.shortfall


class _Inventories:
    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    def cached(self, context: Context) -> Inventory:
        seen_at = now() - timedelta(minutes=3)
        rows = tuple(replace(one, seen_at=seen_at) for one in self._cloud.sandboxes if one.is_tracked)
        return Inventory(context, rows, seen_at if rows else None)

    async def live(self, context: Context) -> Inventory:
        cloud = self._cloud
        cloud.looks += 1
        if cloud.gate is not None:
            await cloud.gate.wait()
        if cloud.error is not None:
            rows = tuple(
                replace(one, state=SandboxState.UNKNOWN, seen_at=None) for one in cloud.sandboxes if one.is_tracked
            )
            return Inventory(context, rows, None, cloud.error)
        seen_at = now()
        told = cloud.sandboxes
        return Inventory(context, await work_beside(len(told), _as_seen, told, seen_at), seen_at)


def _as_seen(rows: Sequence[Sandbox], seen_at: datetime) -> tuple[Sandbox, ...]:
    return tuple(replace(one, seen_at=seen_at) for one in rows)


class _Launcher:
    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    async def create(
        self, name: str | None, options: CreateOptions, *, on_progress: Callable[[str], None] = lambda words: None
    ) -> Registration:
        cloud = self._cloud
        cloud.created.append((name, options))
        if cloud.change_error is not None:
            raise cloud.change_error
        if any(one.name == name for one in cloud.sandboxes):
            raise NameTaken(f"the name `{name}` is taken in context `local`", hint="choose another")
        if not cloud.isolation and cloud.gate is not None:
            # Starting the local cloud comes before anything is launched.
            await cloud.gate.wait()
        on_progress(f"launching {name or 'calm-otter'}")
        if cloud.gate is not None:
            await cloud.gate.wait()
        made = sandbox(name or "calm-otter", created_at=now())
        cloud.sandboxes.append(made)
        return _row(made)


class FakeSandboxes:
    """The life of sandboxes, and their rows."""

    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    async def find(self, reference: str) -> Registration:
        matches = [one for one in self._cloud.sandboxes if one.name == reference]
        # As the real one does: a unique prefix is enough.
        matches = matches or [one for one in self._cloud.sandboxes if one.name.startswith(reference)]
        if not matches:
            raise SandboxNotFound(f"no sandbox `{reference}` in context `local`", hint="`sbx ls` lists them")
        return _row(matches[0])

    async def record(self, sandbox_id: SandboxId) -> SandboxRecord:
        one = next((one for one in self._cloud.sandboxes if one.id == sandbox_id), None)
        if one is None or self._cloud.error is not None:
            raise self._cloud.error or SandboxNotFound(f"no sandbox `{sandbox_id}`")
        return SandboxRecord(
            id=one.id,
            state=one.state,
            endpoint=one.endpoint,
            image_arn=one.image_arn,
            image_version=one.image_version,
            started_at=one.created_at,
            max_duration_s=0,
            state_reason=one.state_reason,
        )

    async def rename(self, old: str, new: str) -> Registration:
        if any(one.name == new for one in self._cloud.sandboxes):
            raise NameTaken(f"the name `{new}` is taken in context `local`", hint="choose another")
        self._cloud.done.append(f"rename {old} {new}")
        self._cloud.sandboxes = [replace(one, name=new) if one.name == old else one for one in self._cloud.sandboxes]
        return await self.find(new)

    async def adopt(self, sandbox_id: str, name: str | None) -> Registration:
        self._cloud.done.append(f"adopt {sandbox_id} {name}")
        self._cloud.sandboxes = [
            replace(one, name=name or "told") if one.id == sandbox_id else one for one in self._cloud.sandboxes
        ]
        return await self.find(name or "told")

    async def suspend(self, row: Registration) -> str:
        return await self._become("suspend", row, SandboxState.SUSPENDED)

    async def resume(self, row: Registration) -> str:
        return await self._become("resume", row, SandboxState.RUNNING)

    async def remove(self, row: Registration) -> str:
        await self._become("remove", row, SandboxState.TERMINATED)
        self._cloud.sandboxes = [one for one in self._cloud.sandboxes if one.name != row.name]
        return "removed"

    async def _become(self, verb: str, row: Registration, state: SandboxState) -> str:
        if self._cloud.gate is not None:
            await self._cloud.gate.wait()
        if self._cloud.change_error is not None:
            raise self._cloud.change_error
        self._cloud.done.append(f"{verb} {row.name}")
        self._cloud.sandboxes = [
            replace(one, state=state) if one.name == row.name else one for one in self._cloud.sandboxes
        ]
        return "suspended; kept until it is removed" if verb == "suspend" else "running"


class _Jobs:
    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    async def exec(
        self,
        row: Registration,
        command: Command,
        *,
        on_output: OnOutput | None = None,
        ends_with_caller: bool = False,
    ) -> ExecResult:
        assert (
            ends_with_caller and isinstance(command.argv, str) and on_output is not None and self._cloud.run is not None
        )
        try:
            code = await self._cloud.run(command.argv, on_output)
        except asyncio.CancelledError:
            self._cloud.cancelled.append(command.argv)
            raise
        return ExecResult(exit_code=code, stdout=b"", stderr=b"", duration_s=0.1)

    async def follow(self, job: Job, *, cursor: int = 0) -> AsyncGenerator[JobPiece, None]:
        yield JobOutput(cursor, Channel.OUT, f"said by {job.command}\n".encode())
        await asyncio.Event().wait()


class _JobLists:
    def __init__(self, cloud: FakeCloud) -> None:
        self._cloud = cloud

    async def of(self, row: Registration, state: SandboxState) -> JobListing:
        jobs = self._cloud.running.get(row.name, [])
        return (
            JobListing((), (f"`{row.name}` could not be asked: no answer",))
            if jobs is None
            else JobListing(tuple(jobs))
        )


class _JobWatch:
    def __init__(self, lists: _JobLists) -> None:
        self._lists = lists

    async def follow(
        self, row: Registration, state: SandboxState, *, is_asked: bool
    ) -> AsyncGenerator[JobListing, None]:
        yield await self._lists.of(row, state)
        await asyncio.Event().wait()


def job(sandbox: str, command: str, **changes: object) -> Job:
    """A job that runs since two minutes."""
    made = Job(LOCAL.name, SandboxId(f"mvm-{sandbox}"), "j1", "b1", command, "cli:you", now() - timedelta(minutes=2))
    return replace(made, sandbox=sandbox, **changes)  # type: ignore[arg-type]  # fields by name


def _row(one: Sandbox) -> Registration:
    return Registration(
        context=one.context,
        name=one.name,
        id=one.id,
        phase=Phase.TRACKED,
        request=LaunchRequest(image_arn=one.image_arn),
        client_token="token",
        owner="",
        created_at=one.created_at,
        endpoint=one.endpoint,
        labels=one.labels,
        facts=one.facts,
    )
