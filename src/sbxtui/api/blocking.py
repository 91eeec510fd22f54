"""The API for programs without asyncio: each method of `Sandbox` named once more, with its signature and its words."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sbxtui.api.sandbox import Sandbox
from sbxtui.core.loopthread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    method: Callable[Concatenate[Sandbox, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncSandbox, P], T]:
    """`method` of `Sandbox` as one of `SyncSandbox` that returns when it is done; an interrupt cancels it."""

    @functools.wraps(method)
    def run(self: SyncSandbox, /, *args: P.args, **options: P.kwargs) -> T:
        return self._run(method(self._sandbox, *args, **options))

    return run


def making(make: Callable[P, Coroutine[Any, Any, Sandbox]]) -> classmethod[SyncSandbox, P, SyncSandbox]:
    """`make` of `Sandbox` as a way to have a `SyncSandbox`."""

    def run(kind: type[SyncSandbox], /, *args: P.args, **options: P.kwargs) -> SyncSandbox:
        loop = LoopThread()
        try:
            return kind(loop.run(make(*args, **options)), loop)
        except BaseException:
            loop.close()
            raise

    # Not of the bound method: a wrapper's own first argument stands before its.
    return classmethod(functools.wraps(getattr(make, "__func__", make))(run))


def branching(
    method: Callable[Concatenate[Sandbox, P], Coroutine[Any, Any, Sandbox]],
) -> Callable[Concatenate[SyncSandbox, P], SyncSandbox]:
    """`method` of `Sandbox`, which makes another one, as one of `SyncSandbox` that does; each has a loop of its own."""

    @functools.wraps(method)
    def run(self: SyncSandbox, /, *args: P.args, **options: P.kwargs) -> SyncSandbox:
        loop = LoopThread()
        try:
            return SyncSandbox(loop.run(method(self._sandbox, *args, **options)), loop)
        except BaseException:
            loop.close()
            raise

    return run


class SyncSandbox:
    """`Sandbox` for programs without asyncio, and for notebooks: the same methods, each returns when it is done."""

    def __init__(self, sandbox: Sandbox, loop: LoopThread) -> None:
        self._sandbox = sandbox
        self._loop = loop

    create = making(Sandbox.create)
    restore = making(Sandbox.restore)
    attach = making(Sandbox.attach)
    exec = blocking(Sandbox.exec)
    start = blocking(Sandbox.start)
    stop = blocking(Sandbox.stop)
    read_file = blocking(Sandbox.read_file)
    write_file = blocking(Sandbox.write_file)
    ports = blocking(Sandbox.ports)
    forward = blocking(Sandbox.forward)
    forwards = blocking(Sandbox.forwards)
    stop_forward = blocking(Sandbox.stop_forward)
    set_secret = blocking(Sandbox.set_secret)
    secrets = blocking(Sandbox.secrets)
    remove_secret = blocking(Sandbox.remove_secret)
    fork = branching(Sandbox.fork)
    snapshot = blocking(Sandbox.snapshot)
    snapshots = blocking(Sandbox.snapshots)
    remove_snapshot = blocking(Sandbox.remove_snapshot)
    sync = blocking(Sandbox.sync)
    keep_synced = blocking(Sandbox.keep_synced)
    sync_status = blocking(Sandbox.sync_status)
    flush_sync = blocking(Sandbox.flush_sync)
    pause_sync = blocking(Sandbox.pause_sync)
    resume_sync = blocking(Sandbox.resume_sync)
    stop_sync = blocking(Sandbox.stop_sync)
    sync_changes = blocking(Sandbox.sync_changes)
    sync_diff = blocking(Sandbox.sync_diff)
    pull = blocking(Sandbox.pull)
    reject = blocking(Sandbox.reject)
    undo_sync = blocking(Sandbox.undo_sync)
    metrics = blocking(Sandbox.metrics)
    last_hour = blocking(Sandbox.last_hour)
    logs = blocking(Sandbox.logs)
    follow_logs = blocking(Sandbox.follow_logs)
    cost = blocking(Sandbox.cost)
    set_budget = blocking(Sandbox.set_budget)
    keep_awake = blocking(Sandbox.keep_awake)
    let_sleep = blocking(Sandbox.let_sleep)

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

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed:
            work.close()
            raise self._sandbox._closed()
        return self._loop.run(work)
