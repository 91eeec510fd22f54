"""The Python API: sandboxes from a program, the same ones as on the command line and in the dashboard.

    from sbxtui import Sandbox

    sandbox = await Sandbox.create("calm-otter", memory=512)
    print((await sandbox.exec("python3", ["-c", "print('hi')"])).stdout_text)
    await sandbox.terminate()

Every failure is an `sbxtui.core.errors.SbxError` with a message and a hint. Nothing heavy is imported before the first
call that needs it. `SyncSandbox` is the same without `await`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from sbxtui import arguments
from sbxtui.core.errors import Conflict, SandboxEnded, SandboxNotFound, SbxError
from sbxtui.core.loopthread import LoopThread
from sbxtui.core.model import Registration
from sbxtui.settings import Settings, load
from sbxtui.wiring import Services

__all__ = ["ExecOutput", "Sandbox", "SyncSandbox"]

log = logging.getLogger(__name__)

_ACTOR = "python:you"
_PIECE_BYTES = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExecOutput:
    """A finished command.

    `exit_code` is 128+n when signal n ended it, and 124 with `timed_out` when its time ran out. `truncated` says that
    some of its output was lost on the way, `oom` that it was killed for want of memory.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False
    oom: bool = False

    @property
    def stdout_text(self) -> str:
        """Standard output as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """Standard error as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stderr.decode("utf-8", "replace")


class Sandbox:
    """One sandbox. Made by `create` or `attach`; close it, or use it in `async with`. Closed, it raises `Conflict`.

    Leaving `async with` terminates a sandbox that `create` made, and leaves one that was attached as it is.
    """

    def __init__(self, services: Services, row: Registration, *, is_ours: bool) -> None:
        self._open_services: Services | None = services
        self._row = row
        self._is_ours = is_ours
        self._has_ended = False

    @property
    def _services(self) -> Services:
        if self._open_services is None:
            raise self._closed()
        return self._open_services

    def _closed(self) -> SbxError:
        if self._has_ended:
            return SandboxEnded(f"`{self.name}` was terminated", hint="`create` makes another")
        return Conflict(f"this object of `{self.name}` is closed", hint=f'`attach("{self.name}")` gives another')

    @classmethod
    async def create(
        cls,
        name: str | None = None,
        *,
        image_arn: str = "",
        cpus: int | None = None,
        memory: int | str | None = None,
        execution_role_arn: str = "",
        region: str = "",
        ingress_network_connectors: Sequence[str] = (),
        egress_network_connectors: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        network: str = "",
        idle_s: int | None = None,
        max_duration_s: int | None = None,
        workdir: str = "",
        context: str = "",
    ) -> Self:
        """Make a sandbox and wait until it answers. What is left out is as `sbx create` has it.

        Args:
            name: What to call it; None makes a name up.
            image_arn: An image's ARN or name.
            cpus: Checked against what the size gives.
            memory: MiB, or text like `2g`; picks the image of that size.
            execution_role_arn: AWS only.
            region: AWS only; must be the context's.
            ingress_network_connectors: ARNs.
            egress_network_connectors: ARNs.
            env: Environment of every command.
            labels: For filters.
            network: `none`, `allow=HOST:PORT,…` or `internet`.
            idle_s: Suspend after so many seconds without traffic.
            max_duration_s: Terminate after so many seconds.
            workdir: Working folder of commands.
            context: The control plane; empty for the one that counts on the command line.

        Raises:
            SbxError: It could not be made; cancelling takes back what was.
        """
        from sbxtui.services.plan import CreateOptions

        options = CreateOptions(
            image=image_arn,
            role=execution_role_arn,
            memory_mib=arguments.memory_mib(memory),
            cpus=arguments.at_least_one("cpus", cpus),
            env=dict(env or {}),
            labels=dict(labels or {}),
            idle_s=arguments.at_least_one("idle_s", idle_s),
            max_duration_s=arguments.at_least_one("max_duration_s", max_duration_s),
            network=network,
            egress_connectors=tuple(egress_network_connectors),
            ingress_connectors=tuple(ingress_network_connectors),
            workdir=workdir,
        )
        async with _opened(region, context) as services:
            return cls(services, await services.launcher.create(name, options), is_ours=True)

    @classmethod
    async def attach(cls, name: str, *, region: str = "", context: str = "") -> Self:
        """A sandbox that exists, by name, id, or a unique prefix of either; whoever made it.

        Raises:
            SandboxNotFound: There is none. AmbiguousReference: There are several.
        """
        async with _opened(region, context) as services:
            return cls(services, await services.sandboxes.find(name), is_ours=False)

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

    async def exec(
        self,
        cmd: str,
        args: Sequence[str] = (),
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ExecOutput:
        """Run a program to its end; no shell is in between. Cancelling ends it.

        Args:
            cmd: The program.
            args: Its arguments.
            cwd: Its working folder; empty for the sandbox's.
            env: Laid over the sandbox's environment.
            timeout: Seconds of running time, after which it is killed with all its children.

        Raises:
            Conflict: The sandbox is suspended. GuestUnreachable: It does not answer.
        """
        from sbxtui.services.jobs import Command

        command = Command(argv=arguments.words(cmd, args), cwd=cwd, env=dict(env or {}), timeout_s=timeout)
        result = await self._services.jobs.exec(self._row, command)
        return ExecOutput(
            result.exit_code,
            result.stdout,
            result.stderr,
            timed_out=result.timed_out,
            truncated=result.truncated,
            oom=result.oom,
        )

    async def start(self) -> None:
        """Resume it and wait until it answers; running already: nothing happens."""
        await self._services.sandboxes.resume(self._row)

    async def stop(self) -> None:
        """Suspend it: memory and disk are kept."""
        await self._services.sandboxes.suspend(self._row)

    async def read_file(self, path: str) -> bytes:
        """All of a file, in memory. `sbx cp` copies what is too large for that.

        Raises:
            FileMissing: There is no such file.
        """
        content = bytearray()
        await self._services.files.read(self._row, path, content.extend)
        return bytes(content)

    async def write_file(self, path: str, content: str | bytes) -> int:
        """Replace a file, whole or not at all; text becomes UTF-8. Returns its size in bytes.

        Raises:
            FileMissing: Its folder does not exist.
        """
        data = content.encode() if isinstance(content, str) else content
        return await self._services.files.write(self._row, path, _pieces(data))

    async def terminate(self) -> None:
        """End it for good, free its name, and close. Doing it again is harmless."""
        if self._has_ended:
            return
        await self._services.sandboxes.remove(self._row)
        self._has_ended = True
        self.close()

    def close(self) -> None:
        """Let go of it; the sandbox itself is left as it is. Closing twice is harmless."""
        services, self._open_services = self._open_services, None
        if services is not None:
            services.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._is_ours and not self._has_ended:
                await asyncio.shield(self._end(is_failing=error is not None))
        finally:
            self.close()

    async def _end(self, *, is_failing: bool) -> None:
        try:
            await self.terminate()
        except SandboxNotFound:
            # Somebody else removed it: that is what we want.
            self._has_ended = True
        except SbxError as exc:
            if not is_failing:
                raise
            # The caller's own error says more than this one.
            log.warning("sandbox `%s` was not terminated: %s", self.name, exc.message)

    def __repr__(self) -> str:
        return f"<Sandbox {self.name} {self.id}>"


class SyncSandbox:
    """`Sandbox` for programs without asyncio, and for notebooks: the same methods, each returns when it is done."""

    def __init__(self, sandbox: Sandbox, loop: LoopThread) -> None:
        self._sandbox = sandbox
        self._loop = loop

    @classmethod
    def create(cls, name: str | None = None, **options: Any) -> Self:
        """Make a sandbox; takes and raises what `Sandbox.create` does."""
        return cls._made(lambda: Sandbox.create(name, **options))

    @classmethod
    def attach(cls, name: str, *, region: str = "", context: str = "") -> Self:
        """A sandbox that exists; raises what `Sandbox.attach` does."""
        return cls._made(lambda: Sandbox.attach(name, region=region, context=context))

    @classmethod
    def _made(cls, make: Callable[[], Coroutine[Any, Any, Sandbox]]) -> Self:
        loop = LoopThread()
        try:
            return cls(loop.run(make()), loop)
        except BaseException:
            loop.close()
            raise

    @property
    def name(self) -> str:
        """Its name here."""
        return self._sandbox.name

    @property
    def id(self) -> str:
        """Its id at the control plane."""
        return self._sandbox.id

    @property
    def endpoint(self) -> str:
        """Host and port of its endpoint, without a scheme."""
        return self._sandbox.endpoint

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed:
            work.close()
            raise self._sandbox._closed()
        return self._loop.run(work)

    def exec(
        self,
        cmd: str,
        args: Sequence[str] = (),
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ExecOutput:
        """Run a program to its end; see `Sandbox.exec`. Ctrl-C ends it."""
        return self._run(self._sandbox.exec(cmd, args, cwd=cwd, env=env, timeout=timeout))

    def start(self) -> None:
        """Resume it and wait until it answers."""
        self._run(self._sandbox.start())

    def stop(self) -> None:
        """Suspend it: memory and disk are kept."""
        self._run(self._sandbox.stop())

    def read_file(self, path: str) -> bytes:
        """All of a file, in memory."""
        return self._run(self._sandbox.read_file(path))

    def write_file(self, path: str, content: str | bytes) -> int:
        """Replace a file; returns its size in bytes."""
        return self._run(self._sandbox.write_file(path, content))

    def terminate(self) -> None:
        """End it for good, free its name, and close. Doing it again is harmless."""
        if not self._sandbox._has_ended:
            self._run(self._sandbox.terminate())
        self.close()

    def close(self) -> None:
        """Let go of it; the sandbox itself is left as it is. Closing twice is harmless."""
        self._sandbox.close()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if not self._loop.is_closed:
                self._loop.run(self._sandbox.__aexit__(kind, error, traceback))
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<SyncSandbox {self.name} {self.id}>"


@contextlib.asynccontextmanager
async def _opened(region: str, context: str) -> AsyncIterator[Services]:
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


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES]
