"""Pseudo-shells by name: lines queue and run one after the other, each from the state the one before left.

The state lives here and with init, so whoever knows a shell's name shares it, and it outlives the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sbxguest.app import WireError
from sbxguest.initclient import InitClient
from sbxguest.job import Job
from sbxguest.jobs import JobTable
from sbxguest.jobspec import JobSpec, resolve
from sbxguest.shellstate import NotGivenBack, ShellState, command_of, read_back
from sbxguest.state import GuestState

SHELLS_MAX = 64
LINES_MAX = 64
_RESULTS_MAX = 64
_KEPT_AS = "shell:"


@dataclass(slots=True)
class Line:
    """A line that was accepted. `job` is there once it runs, `error` if it could not."""

    spec: JobSpec
    queued_at: str
    job: Job | None = None
    error: WireError | None = None
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def describe(self, shell: str, position: int) -> dict[str, object]:
        """The line as the queue shows it; `position` 0 is the one that runs."""
        return {
            "id": self.spec.id,
            "shell_name": shell,
            "line": self.spec.shell,
            "actor": self.spec.actor,
            "state": "running" if self.job else "queued",
            "position": position,
            "queued_at": self.queued_at,
        }


class Shell:
    """One pseudo-shell. `state` is None until a line gave one back."""

    def __init__(self, name: str, table: ShellTable) -> None:
        self.name = name
        self.state: ShellState | None = None
        self.queue: deque[Line] = deque()
        # By line id: what its EXIT says beside the rest.
        self.results: dict[str, dict[str, object]] = {}
        self._table = table
        self._task: asyncio.Task[None] | None = None

    def describe(self) -> dict[str, object]:
        """What is known; of the environment only the names, for values may be secret."""
        cwd, env = (self.state.cwd, sorted(self.state.env)) if self.state else (self._table.workdir, [])
        return {
            "name": self.name,
            "cwd": cwd,
            "env": env,
            "keeps": ["cwd", "exported variables"],
            "queue": [line.describe(self.name, at) for at, line in enumerate(self.queue)],
            "last": next(reversed(self.results.values()), None),
        }

    def add(self, line: Line) -> None:
        """Queue a line, and begin with it if none runs."""
        self.queue.append(line)
        self.start()

    def start(self) -> None:
        """Run what is queued."""
        if self.queue and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def drop(self, line: Line, error: WireError) -> None:
        """Take a line out of the queue and tell whoever waits for it."""
        if line in self.queue:
            self.queue.remove(line)
            line.error = error
            line.moved.set()
            self._table.save(self)

    async def _run(self) -> None:
        while self.queue:
            line = self.queue[0]
            try:
                job, _ = await self._table.jobs.start(self._table.prepare(self, line.spec))
            except WireError as error:
                self.drop(line, error)
                continue
            except (OSError, ValueError, LookupError) as exc:
                # Else whoever waits for this line, or one behind it, waits for ever.
                self.drop(line, WireError(500, "cannot_start", f"line `{line.spec.id}` cannot be started: {exc!r}"))
                continue
            line.job = job
            line.moved.set()
            while line in self.queue and not job.log.is_closed:
                if job.is_finished:
                    self.take(job)
                    break
                await job.changed()
            self.drop(line, _gone(line.spec.id))

    def take(self, job: Job) -> None:
        """The first line is over: its state becomes this shell's, or the old one stays. Others' ends change nothing."""
        if not self.queue or self.queue[0].spec.id != job.id:
            job.exit_more = self.results.get(job.id, {})
            return
        why = ""
        try:
            state = read_back(job.side_fd)
        except NotGivenBack as exc:
            why = str(exc)
        except OSError as exc:
            why = f"the state cannot be read: {exc.strerror}"
        else:
            self.state = _without_foreign_term(state, self.state, self.queue[0].spec)
        cwd = self.state.cwd if self.state else self._table.workdir
        said = {"name": self.name, "cwd": cwd, "is_kept": not why, "why": why}
        job.exit_more = self.results[job.id] = {"shell": said}
        while len(self.results) > _RESULTS_MAX:
            del self.results[next(iter(self.results))]
        self.queue.popleft()
        self._table.save(self)

    def close(self) -> None:
        """Run nothing more; whoever waits is told."""
        if self._task is not None:
            self._task.cancel()
        while self.queue:
            line = self.queue.popleft()
            line.error = _gone(line.spec.id)
            line.moved.set()


class ShellTable:
    """All pseudo-shells. Nothing is made by looking; the first line makes a shell."""

    def __init__(self, jobs: JobTable, state: GuestState, init: InitClient) -> None:
        self.jobs = jobs
        self._state = state
        self._init = init
        self._shells: dict[str, Shell] = {}
        jobs.on_finished = self._on_finished

    @property
    def workdir(self) -> str:
        """Where a shell starts."""
        return self._state.workdir

    def adopt(self, kept: Mapping[str, bytes]) -> None:
        """Take back what a killed server left with init, by the names of its descriptors; before jobs are adopted."""
        for kept_as, data in kept.items():
            if kept_as.startswith(_KEPT_AS):
                shell = Shell(kept_as.removeprefix(_KEPT_AS), self)
                _load(shell, json.loads(data))
                self._shells[shell.name] = shell

    def start(self) -> None:
        """Go on with what was queued; after jobs were adopted."""
        for shell in self._shells.values():
            shell.start()

    def all(self) -> list[Shell]:
        """Every shell, by name."""
        return [self._shells[name] for name in sorted(self._shells)]

    def get(self, name: str) -> Shell:
        """The shell.

        Raises:
            WireError: 404.
        """
        shell = self._shells.get(name)
        if shell is None:
            raise WireError(404, "not_found", f"there is no shell `{name[:80]}`", hint="its first line makes it")
        return shell

    def state_of(self, name: str) -> ShellState:
        """Where a shell is, or where it would start."""
        shell = self._shells.get(name)
        return self._first_state() if shell is None or shell.state is None else shell.state

    def submit(self, name: str, spec: JobSpec) -> tuple[Shell, Line, bool]:
        """Queue a line, or find the one that has this id and request already (then the third value is False).

        Raises:
            WireError: 409 another request has this id; 429 too many lines or shells.
        """
        shell = self._shells.get(name)
        known = None if shell is None else next((line for line in shell.queue if line.spec.id == spec.id), None)
        job = self.jobs.find(spec.id)
        digest = known.spec.digest if known else job.digest if job else spec.digest
        if digest != spec.digest:
            raise WireError(409, "conflict", f"job `{spec.id}` exists and was asked for differently")
        if shell is not None and known is not None:
            return shell, known, False
        if job is not None:
            return shell or Shell(name, self), Line(spec, "", job), False
        shell = shell or self._make(name)
        if len(shell.queue) >= LINES_MAX:
            raise WireError(429, "too_many_lines", f"{LINES_MAX} lines wait in shell `{name}`", hint="try again later")
        line = Line(spec, datetime.now(UTC).isoformat())
        shell.add(line)
        self.save(shell)
        return shell, line, True

    def delete(self, name: str) -> Shell:
        """Forget a shell and what is queued; the line that runs is ended, and its output stays to be read.

        Raises:
            WireError: 404.
        """
        shell = self.get(name)
        running = next((line.job for line in shell.queue if line.job), None)
        del self._shells[name]
        shell.close()
        self._init.unput(_KEPT_AS + name)
        if running is not None:
            running.end()
        return shell

    def cancel(self, name: str, line_id: str) -> None:
        """Take a line that has not begun out of the queue.

        Raises:
            WireError: 404; 409, it runs.
        """
        shell = self.get(name)
        line = next((line for line in shell.queue if line.spec.id == line_id), None)
        if line is None:
            raise WireError(404, "not_found", f"shell `{name}` has no line `{line_id[:80]}` in its queue")
        if line is shell.queue[0]:
            raise WireError(409, "is_running", f"line `{line_id}` runs already", hint="send its job a signal")
        shell.drop(line, _gone(line_id))

    # -- for the shells -----------------------------------------------------------------------------------------------

    def prepare(self, shell: Shell, spec: JobSpec) -> JobSpec:
        """The line as a job from the shell's state of now."""
        state = shell.state or self._first_state(spec)
        cwd, note = _existing(state.cwd, self.workdir)
        # Not that of the state: a line may have set a PATH without any shell.
        path = self._state.settings.path
        program = shutil.which("bash", path=path) or shutil.which("sh", path=path) or "/bin/sh"
        argv = command_of(program, spec.shell, is_first=shell.state is None, note=note)
        shown = (argv[0].rpartition("/")[2], "-c", spec.shell)
        return replace(
            spec, argv=argv, argv_shown=shown, cwd=cwd, exact_env=state.variables(cwd), shell_name=shell.name
        )

    def save(self, shell: Shell) -> None:
        """Have init keep what the shell is now."""
        if self._shells.get(shell.name) is shell:
            # Without room for it, the shell goes on: only a killed server would go on from an older state.
            with contextlib.suppress(OSError):
                self._init.put(_KEPT_AS + shell.name, json.dumps(_saved(shell)).encode())

    def _first_state(self, spec: JobSpec | None = None) -> ShellState:
        # What only a terminal's program needs is no state of the shell.
        program = resolve(replace(spec, tty=None) if spec else JobSpec("none", "", ("true",)), self._state)
        env = {os.fsdecode(name): os.fsdecode(value) for name, value in program.env.items()}
        return ShellState(self.workdir, env)

    def _make(self, name: str) -> Shell:
        if len(self._shells) >= SHELLS_MAX:
            raise WireError(429, "too_many_shells", f"there are {SHELLS_MAX} shells", hint="delete some first")
        shell = self._shells[name] = Shell(name, self)
        return shell

    def _on_finished(self, job: Job) -> None:
        shell = self._shells.get(str(job.shown.get("shell_name", "")))
        if shell is not None:
            shell.take(job)


def _existing(cwd: str, workdir: str) -> tuple[str, str]:
    """The folder, or the nearest above it that is still there, and what to say of it."""
    found = cwd
    while not os.path.isdir(found) and found != "/":  # noqa: PTH112 - keeps what `..` and links mean to a shell
        found = os.path.dirname(found)  # noqa: PTH120 - as above
    if found == cwd:
        return cwd, ""
    if found == "/" and os.path.isdir(workdir):  # noqa: PTH112 - as above
        found = workdir
    return found, f"{cwd} is gone; this line runs in {found}"


def _without_foreign_term(state: ShellState, before: ShellState | None, spec: JobSpec) -> ShellState:
    """The kind of terminal belongs to whoever ran the line, not to the shell."""
    if spec.tty is None or state.env.get("TERM") != spec.tty.term:
        return state
    old = {"TERM": before.env["TERM"]} if before is not None and "TERM" in before.env else {}
    return replace(state, env={**{name: text for name, text in state.env.items() if name != "TERM"}, **old})


def _gone(line_id: str) -> WireError:
    return WireError(410, "line_dropped", f"line `{line_id}` was taken out of the queue and did not run to its end")


def _saved(shell: Shell) -> dict[str, Any]:
    return {
        "state": asdict(shell.state) if shell.state else None,
        "queue": [[asdict(line.spec), line.queued_at] for line in shell.queue],
        "results": shell.results,
    }


def _load(shell: Shell, saved: dict[str, Any]) -> None:
    if saved["state"] is not None:
        shell.state = ShellState(**saved["state"])
    shell.queue.extend(Line(JobSpec.loaded(spec), queued_at) for spec, queued_at in saved["queue"])
    shell.results = saved["results"]
