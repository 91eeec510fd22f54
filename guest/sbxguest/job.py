"""One job as the server sees it: its pipes pumped into its log, its timers, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal as signals
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sbxguest import terminal, wire
from sbxguest.app import WireError
from sbxguest.initclient import InitClient
from sbxguest.jobinput import JobInput
from sbxguest.joblimits import JobGroup
from sbxguest.joblog import JobLog
from sbxguest.jobstate import Flag, JobState
from sbxguest.oom import oom_kills
from sbxguest.runclock import RunClock
from sbxguest.sources import Source, sources_of
from sbxguest.terminal import Size, Terminal
from sbxguest.watchers import Watchers

QUIET_S = 0.1
DRAIN_MAX_S = 2.0
_PUMP_ROUNDS = 4
_NO_LIMIT = 1 << 62
# What a closed terminal makes a shell do: hang up on everything it started. By themselves, shells ignore TERM.
_END_SIGNALS = {False: (signals.SIGTERM,), True: (signals.SIGTERM, signals.SIGHUP, signals.SIGCONT)}
_TIMEOUT_SAVE_S = 1.0


@dataclass(frozen=True, slots=True)
class JobParts:
    """What a job is made of beside its request: its log, its descriptors by name, its control groups."""

    log: JobLog
    fds: dict[str, int]
    group: JobGroup

    def open_terminal(self, *, is_running: bool) -> Terminal | None:
        """The terminal among the descriptors, if there is one."""
        has_one = all(name in self.fds for name in terminal.KEPT)
        return Terminal(self.fds, is_running=is_running) if has_one else None


class Job:
    """Made by `JobTable`. All methods belong to the event loop's thread.

    Invariant: EXIT is shown (`is_finished`) only after the last byte of output is in the log.
    """

    def __init__(
        self, shown: dict[str, Any], digest: str, parts: JobParts, *, init: InitClient, clock: RunClock
    ) -> None:
        self.id = str(shown["id"])
        self.shown = shown
        self.digest = digest
        self.log = parts.log
        self.state = JobState(self.log.fd)
        # Whether EXIT stands behind the log.
        self.is_finished = self.state.has(Flag.FINISHED)
        self.on_finished: Callable[[Job], None] = _nobody
        self.pid = 0
        self.failure: tuple[str, int] | None = None
        self.settled = asyncio.Event()
        self.is_empty = False
        self._init = init
        self._clock = clock
        self.terminal = parts.open_terminal(is_running=not self.is_finished)
        self.input = self._input_of(parts.fds)
        # What its program wrote as descriptor 3, or -1.
        self.side_fd = parts.fds.get("side", -1)
        self.exit_more: dict[str, object] = {}
        self._sources = sources_of(parts.fds, self.terminal)
        self._is_paused = False
        self._watchers = Watchers(
            self,
            clock,
            holds=shown["log"] == "hold" and not self.state.has(Flag.HOLD_OVER),
            ends_alone=shown["on_disconnect"] == "kill",
        )
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._exit_code: int | None = None
        self._end_task: asyncio.Task[None] | None = None
        self._timeout_task: asyncio.Task[None] | None = None
        self._group = parts.group
        # A group of its own begins with the job, also for a server that comes after a kill.
        self._oom_kills = 0 if self._group.oom_kills() is not None else oom_kills()
        self._was_killed = False

    def _input_of(self, fds: dict[str, int]) -> JobInput:
        made = JobInput(self, self.state, self.log.fd, has_any=self.shown["stdin"] != "none")
        if self.terminal is not None:
            made.open_terminal(self.terminal)
        elif "in_w" in fds:
            made.open_pipe(fds["in_w"], lambda: self._init.drop(self.id, "in_w"))
        return made

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def exit(self) -> dict[str, Any]:
        """The EXIT document; only when finished."""
        return {**self.state.exit_document(self.log.channel_totals), **self.exit_more}

    def describe(self) -> dict[str, Any]:
        """The job as listings show it."""
        status = "exited" if self.is_finished else "running" if self.pid else "starting"
        size = self.terminal and self.terminal.size
        tty = self.shown["tty"] and {**self.shown["tty"], **(size._asdict() if size else {})}
        return {
            **self.shown,
            "tty": tty,
            "state": status,
            "pid": self.pid or None,
            "cursor": self.log.total,
            "stdin_accepted": self.input.accepted(),
            "watchers": self._watchers.count,
            "exit": self.exit if self.is_finished else None,
        }

    # -- beginning ----------------------------------------------------------------------------------------------------

    def start_pumps(self) -> None:
        """Begin to read the job's output; for a new job and for one that init kept."""
        self._watch_sources()
        if not self.is_finished and self.shown["timeout_s"]:
            self._timeout_task = self._spawn_task(self._time_out())
        if not self.is_finished and self.state.has(Flag.ENDING):
            self.end()
        self._watchers.check()

    def on_init(self, message: dict[str, Any]) -> None:
        """Hear what became of the processes."""
        match message["op"]:
            case "started":
                self.pid = int(message["pid"])
                if not self.state.started_ms:
                    self.state.started_ms = time.monotonic_ns() // 1_000_000
                    self.state.save()
                self.settled.set()
            case "failed":
                self.failure = (str(message["stage"]), int(message["errno"]))
                self.is_empty = True
                self.settled.set()
            case "exit":
                self._exit_code = int(message["code"])
                if self.terminal is not None:
                    self.terminal.release()
                if not self.is_finished:
                    self._spawn_task(self._finish())
            case "empty":
                self.is_empty = True
                self._group.remove()
        self.wake()

    def end_unstarted(self, code: int, text: str) -> None:
        """The program could not be started: that is the job's result, as a shell would tell it."""
        now_ms = time.monotonic_ns() // 1_000_000
        self.state.started_ms = now_ms
        if self.terminal is None:
            self.log.add(text.encode(), wire.Channel.ERR)
        else:
            self.log.add(text.replace("\n", "\r\n").encode(), wire.Channel.PTY)
            self.terminal.release()
        self._exit_code = code
        self._seal()

    # -- output -------------------------------------------------------------------------------------------------------

    def _on_readable(self, source: Source) -> None:
        try:
            for _ in range(_PUMP_ROUNDS):
                if self.is_finished:
                    moved = source.discard()
                else:
                    room = self.log.room(self._watchers.acknowledged) if self._watchers.holds else _NO_LIMIT
                    if room == 0:
                        self._pause()
                        return
                    moved = source.take(self.log, room)
                if moved == 0:
                    self._close_source(source)
                    break
        except BlockingIOError:
            pass
        self.wake()

    def _close_source(self, source: Source) -> None:
        self._sources.remove(source)
        self._unwatch(source)
        if source is self.terminal:
            self.input.close()
        source.close()
        self._init.drop(self.id, *source.kept)

    def _watch_sources(self) -> None:
        loop = asyncio.get_running_loop()
        for source in self._sources:
            for fd in source.fds:
                loop.add_reader(fd, self._on_readable, source)

    def _unwatch(self, source: Source) -> None:
        loop = asyncio.get_running_loop()
        for fd in source.fds:
            loop.remove_reader(fd)

    def _pause(self) -> None:
        self._is_paused = True
        for source in self._sources:
            self._unwatch(source)
        self.wake()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._watch_sources()

    def wake(self) -> None:
        """Have everyone who waits for `changed` look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def changed(self) -> Coroutine[Any, Any, object]:
        """Returns, when awaited, once there may be more to read or the job moved on since this call."""
        return self._changed.wait()

    def resize(self, size: Size) -> None:
        """Change the terminal's size.

        Raises:
            WireError: 409, the job has no terminal.
        """
        if self.terminal is None:
            raise WireError(409, "no_tty", f"job `{self.id}` has no terminal")
        if self.terminal.resize(size):
            # Who is in the foreground is not told there, either; by default, programs ignore this signal.
            self._init.signal(self.id, signals.SIGWINCH, "tree")

    # -- watchers -----------------------------------------------------------------------------------------------------

    def watched(self, *, holds: bool, cursor: int = 0, reader: str = "") -> AbstractContextManager[str]:
        """While a reader is there, from `cursor` on; a holding one slows a `hold` job down instead of losing output.

        Its value is the reader's name. A reader that comes again under its name is the same one.
        """
        return self._watchers.one(holds=holds, cursor=self._needed_from(cursor), name=reader)

    def acknowledge(self, cursor: int, reader: str) -> None:
        """That holding reader has everything before `cursor`."""
        self._watchers.acknowledge(reader, self._needed_from(cursor))
        self.use_room()

    def _needed_from(self, cursor: int) -> int:
        # Of what is before the ring, nothing is waited for: it is kept for ever, or gone.
        return max(min(cursor, self.log.total), self.log.floor)

    def use_room(self) -> None:
        """Go on if there is room for more output again."""
        if self._is_paused and not self.log.is_closed and self.log.room(self._watchers.acknowledged):
            self._resume()

    def stop_holding(self) -> None:
        """No reader is waited for any more, also not after a restart."""
        self.state.set(Flag.HOLD_OVER)
        self._resume()

    # -- ending -------------------------------------------------------------------------------------------------------

    def signal(self, number: int, to: str) -> None:
        """Send a signal to `leader`, `group` or `tree`; without effect on what is gone."""
        self._was_killed = self._was_killed or number == signals.SIGKILL
        self._init.signal(self.id, number, to)

    def end(self) -> None:
        """Begin to end the whole job: TERM to the group, the grace period, then KILL to everything it ever started."""
        if self._end_task is None:
            self.state.set(Flag.ENDING)
            self._end_task = self._spawn_task(self._end())

    async def _end(self) -> None:
        grace_s = float(self.shown["kill_grace_s"])
        if grace_s and not self.is_empty:
            for number in _END_SIGNALS[self.terminal is not None]:
                self.signal(number, "group")
            grace = asyncio.ensure_future(self._clock.sleep(grace_s))
            try:
                while not (self.is_empty or grace.done()):
                    changed = asyncio.ensure_future(self.changed())
                    await asyncio.wait((grace, changed), return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
            finally:
                grace.cancel()
        await self.kill_tree()

    async def kill_tree(self, *, timeout_s: float = 5.0) -> None:
        """KILL everything of the job and wait until it is gone, or until `timeout_s`."""
        if not self.is_empty:
            self.signal(signals.SIGKILL, "tree")
            self._group.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.is_empty:
                    await self.changed()

    async def _time_out(self) -> None:
        left_s = float(self.shown["timeout_s"]) - self.state.ran_ms / 1000
        while left_s > 0:
            step_s = min(left_s, _TIMEOUT_SAVE_S)
            await self._clock.sleep(step_s)
            left_s -= step_s
            self.state.ran_ms += int(step_s * 1000)
            self.state.save()
        if self._exit_code is None:
            self.state.set(Flag.TIMED_OUT)
            self.end()

    async def _finish(self) -> None:
        """The leader has ended: wait for the rest of its output, then seal."""
        if self._timeout_task is not None:
            self._timeout_task.cancel()
        if self._end_task is not None:
            await asyncio.wait((self._end_task,))
        await self._drain()
        self._seal()

    async def _drain(self) -> None:
        """Until the output ends, or nothing came for a moment, or a background writer went on for too long."""
        loop = asyncio.get_running_loop()
        spent_s = 0.0
        while self._sources and spent_s < DRAIN_MAX_S:
            if self._is_paused:
                await self.changed()
                continue
            began_s = loop.time()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self.changed()
            except TimeoutError:
                return
            spent_s += loop.time() - began_s

    def _seal(self) -> None:
        state = self.state
        state.exit_code = self._exit_code or 0
        state.ended_ms = time.monotonic_ns() // 1_000_000
        state.end_cursor = self.log.total
        # What never started left nothing behind: its pipes are still open at its would-be parent only. And some kernels
        # tell of no end of a terminal's output.
        is_open = self._sources and not (self.terminal is not None and self.is_empty)
        if is_open and self.failure is None:
            state.flags |= Flag.LINGERING
        if state.exit_code == -signals.SIGKILL and not self._was_killed and self._count_oom() > self._oom_kills:
            state.flags |= Flag.OOM
        state.set(Flag.FINISHED)
        self.is_finished = True
        try:
            self.on_finished(self)
        finally:
            self._watchers.check()
            self.input.close()
            self._resume()
            self.wake()

    def close(self) -> None:
        """Let go of everything the server holds of this job; its processes are not touched."""
        self._watchers.close()
        for task in self._tasks:
            task.cancel()
        self.input.forget()
        self._group.remove()
        if self.side_fd >= 0:
            os.close(self.side_fd)
            self.side_fd = -1
        for source in list(self._sources):
            self._close_source(source)
        self.state.close()
        self.log.close()
        self.wake()

    def _count_oom(self) -> int:
        own = self._group.oom_kills()
        return oom_kills() if own is None else own

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _nobody(_job: Job) -> None:
    """Nobody keeps account of this job."""
