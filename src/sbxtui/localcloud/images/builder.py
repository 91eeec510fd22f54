"""Building a version: its archive from S3, the steps of its Dockerfile in a sandbox, and what that has become."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from sbxtui.core.errors import SbxError
from sbxtui.core.model import SandboxState
from sbxtui.core.text import harmless_line
from sbxtui.localcloud.bases.store import BaseStore
from sbxtui.localcloud.copies import MEMORY, find_copy
from sbxtui.localcloud.egress.conversation import Ways
from sbxtui.localcloud.egress.service import usual_ways
from sbxtui.localcloud.guestcalls import GuestRefused
from sbxtui.localcloud.images import recipe
from sbxtui.localcloud.images.archive import BadArchive, unpack
from sbxtui.localcloud.images.buildlog import BuildLog
from sbxtui.localcloud.images.context import pack
from sbxtui.localcloud.images.dockerfile import DockerfileError
from sbxtui.localcloud.images.layers import Layers, next_key
from sbxtui.localcloud.images.network import BuildNetworks
from sbxtui.localcloud.images.probation import BuildFailed, ask_until_done
from sbxtui.localcloud.images.records import FAILED, INACTIVE, SUCCESSFUL, ImageStore, Version
from sbxtui.localcloud.images.roots import OWN_ROOT_WORDS, ground_of, root_problem
from sbxtui.localcloud.images.rules import s3_place
from sbxtui.localcloud.images.sources import own_sources
from sbxtui.localcloud.images.wayout import WayOut
from sbxtui.localcloud.images.workshop import Task, Workshop
from sbxtui.localcloud.program import Program, hooks_of
from sbxtui.localcloud.programs import start_program
from sbxtui.localcloud.records import Record
from sbxtui.localcloud.runtimes.choose import find_runtime
from sbxtui.localcloud.spec import SandboxSpec
from sbxtui.localcloud.treewalk import usage_of
from sbxtui.localcloud.world import World, image_env

BUILD_S = 7200.0
_FAILED = "The container image build failed."


class Objects(Protocol):
    """Where archives are."""

    def file_of(self, bucket: str, key: str) -> Path:
        """The content of an object.

        Raises:
            LookupError: There is none; its first argument is the platform's code for why.
        """
        ...


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds versions of images of one home, each in sandboxes of its own."""

    world: World
    store: ImageStore
    objects: Objects
    bases: BaseStore
    networks: BuildNetworks
    make_ways: Callable[[], Ways] = usual_ways

    async def build(self, name: str, version: Version) -> Version:
        """Build one; it is SUCCESSFUL, or FAILED with the reason. What is said meanwhile is in its log."""
        said = BuildLog(self.store.log_of(version.build_id))
        context = self.store.directory / f"{version.build_id}.context"
        try:
            async with asyncio.timeout(BUILD_S):
                return await self._built(name, version, context, said)
        except BuildFailed as exc:
            said.say(exc.reason)
            return version.with_changes(state=FAILED, status=INACTIVE, reason=exc.reason)
        except (DockerfileError, GuestRefused, SbxError, OSError, TimeoutError) as exc:
            said.say(f"ERROR: {harmless_line(str(exc)) or type(exc).__name__}")
            return version.with_changes(state=FAILED, status=INACTIVE, reason=_FAILED)
        finally:
            said.close()
            await asyncio.to_thread(shutil.rmtree, context, ignore_errors=True)

    async def _built(self, name: str, version: Version, context: Path, said: BuildLog) -> Version:
        await asyncio.to_thread(self._fetch, version, context)
        wanted = await asyncio.to_thread(self._read_recipe, context)
        if not find_runtime(self.world.runtime).has_own_network:
            raise BuildFailed("INTERNAL_PLATFORM_ERROR: images are built in isolated sandboxes only")
        told = image_env(name, self.world.catalog.arn_of(name), version.name, self.world.catalog.region)
        program = replace(_program_of(wanted, version, told), base=await asyncio.to_thread(self._base_of, wanted))
        workshop = await self._workshop(name, version, program, said)
        if workshop.spec.is_build:
            # There is one user alone.
            program = replace(program, user="")
        layers = Layers(self.store.trees_dir / "layers")
        first_key = await asyncio.to_thread(self._first_key, version, program, workshop.spec)
        tasks = await asyncio.to_thread(_tasks_of, wanted, context, first_key)
        kind = await _make(workshop, tasks, program, layers, self.store.folder_of(version.build_id))
        await asyncio.to_thread(layers.prune)
        size = (await asyncio.to_thread(usage_of, self.store.folder_of(version.build_id))).size_bytes
        said.say(f"done: {size} bytes")
        return version.with_changes(
            state=SUCCESSFUL,
            program=program,
            runtime=self.world.runtime,
            code_bytes=(await asyncio.to_thread(usage_of, context)).size_bytes,
            **({"memory_bytes": size} if kind == MEMORY else {"disk_bytes": size}),
        )

    async def _workshop(self, name: str, version: Version, program: Program, said: BuildLog) -> Workshop:
        """For a version, and a word in its log on what its steps may do."""
        spec = self.world.spec_of(self._record(name, version, program))
        problem = await asyncio.to_thread(root_problem, spec)
        said.say(f"only /work, /home/sandbox and /tmp can be written: {problem}" if problem else OWN_ROOT_WORDS)
        policy = await asyncio.to_thread(self.networks.take, name)
        said.say(f"network: {policy.text}, by the proxy that http_proxy and https_proxy name")
        way_out = WayOut(policy, replace(self.make_ways(), own_sources=await asyncio.to_thread(own_sources)))
        return Workshop(replace(spec, is_build=not problem), self.world, said, way_out)

    def _fetch(self, version: Version, context: Path) -> None:
        try:
            archive = self.objects.file_of(*s3_place(version.asked["codeArtifact"]["uri"]))
        except LookupError as exc:
            raise BuildFailed(str(exc.args[0])) from exc
        context.mkdir(mode=0o700, parents=True)
        try:
            unpack(archive, context)
        except BadArchive as exc:
            raise BuildFailed(f"ARCHIVE_INVALID: {exc}") from exc
        except OSError as exc:
            raise BuildFailed(f"DISK_STORAGE_FULL: {exc.strerror or exc}") from exc

    def _read_recipe(self, context: Path) -> recipe.Recipe:
        try:
            text = (context / "Dockerfile").read_text()
        except FileNotFoundError as exc:
            raise BuildFailed("ARCHIVE_DOCKERFILE_NOT_FOUND") from exc
        except UnicodeDecodeError as exc:
            raise DockerfileError("the Dockerfile is no text") from exc
        return recipe.recipe_of(text, [base.name for base in self.bases.all()])

    def _base_of(self, wanted: recipe.Recipe) -> str:
        base = None if wanted.base in recipe.BASES else self.bases.find(wanted.base)
        return base.folder if base is not None else ""

    def _record(self, name: str, version: Version, program: Program) -> Record:
        """Of a sandbox of this version, had it been launched: what it is started with is the same."""
        return Record(
            id="build",
            state=SandboxState.PENDING,
            image_name=name,
            image_arn=self.world.catalog.arn_of(name),
            image_version=version.name,
            memory_mib=version.memory_mib,
            runtime=self.world.runtime,
            endpoint_port=0,
            started_at=datetime.now(UTC),
            token_key="",
            fingerprint="",
            payload="",
            program=program,
        )

    def _first_key(self, version: Version, program: Program, spec: SandboxSpec) -> str:
        told = [self.world.runtime, version.memory_mib, bool(program.argv), program.base]
        # What was built upon this machine's system is built anew when that has changed.
        return next_key("", [*told, *([ground_of(spec)] if spec.is_build else [])])


async def _make(workshop: Workshop, tasks: Sequence[Task], program: Program, layers: Layers, folder: Path) -> str:
    """Do what is not done yet, and leave the result in a folder, tried if it wants to be; what kind of copy that is."""
    done, begin_with = await asyncio.to_thread(layers.find_last, [task.key for task in tasks])
    if done:
        workshop.said.say(f"the first {done} steps were done before")
    tasks, begin_with = await workshop.do_runs(tasks[done:], begin_with, layers)
    async with workshop.sandbox(begin_with) as keeper:
        await workshop.do(tasks, keeper, layers)
        if program.argv:
            await start_program(keeper.dial, program)
        await ask_until_done(keeper.dial, program, "ready")
        workshop.said.say("taking the snapshot")
        kind = await workshop.keep(keeper, folder)
    if "validate" in program.hooks:
        workshop.said.say("starting from the snapshot, to validate it")
        async with workshop.as_launched().sandbox(find_copy(folder)) as keeper:
            if program.argv:
                await start_program(keeper.dial, program)
            await ask_until_done(keeper.dial, program, "validate")
    return kind


def _tasks_of(wanted: recipe.Recipe, context: Path, key: str) -> Sequence[Task]:
    tasks = []
    for step in wanted.steps:
        packed = pack(step, context) if isinstance(step, recipe.Copy) else None
        key = next_key(key, packed.digest if packed else repr(step))
        tasks.append(Task(step, key, packed))
    return tasks


def _program_of(wanted: recipe.Recipe, version: Version, told: Mapping[str, str]) -> Program:
    """What the request says of the environment comes before the Dockerfile, and the platform's own before both."""
    port, hooks = hooks_of(version.asked)
    env = {**wanted.env, **version.asked.get("environmentVariables", {}), **told}
    return Program(wanted.argv, env, wanted.workdir, wanted.user, port, hooks)
