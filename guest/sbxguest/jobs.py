"""All jobs of the sandbox: made once per id, kept within a memory budget, adopted after a restart of the server."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sbxguest import descriptors, shellstate, wire
from sbxguest.app import WireError
from sbxguest.fdstore import KEPT
from sbxguest.guestlog import GuestLog
from sbxguest.initclient import InitClient
from sbxguest.job import Job, JobParts
from sbxguest.joblimits import JobGroup
from sbxguest.joblog import JobLog
from sbxguest.jobspec import JobSpec, resolve
from sbxguest.runclock import RunClock
from sbxguest.spawn import Spec
from sbxguest.state import GuestState
from sbxguest.terminal import Size, open_pair

LIVE_JOBS_MAX = 128
FINISHED_JOBS_MAX = 256
_PIPE_BYTES = 256 * wire.KIB
_RING_BYTES_LEAST = 128 * wire.KIB


class JobTable:
    """Jobs by id, oldest first."""

    def __init__(self, init: InitClient, state: GuestState, clock: RunClock, log: GuestLog) -> None:
        self._init = init
        self._state = state
        self._clock = clock
        self._log = log
        self._jobs: dict[str, Job] = {}
        # Those that run or left something running; the others, in the order they ended, and what their logs take.
        self._live: dict[str, Job] = {}
        self._over: dict[str, Job] = {}
        self._over_bytes = 0
        self.on_finished: Callable[[Job], None] = _nothing
        init.on_message = self._on_init

    def adopt(self, kept: Mapping[str, dict[str, int]], told: list[dict[str, Any]]) -> None:
        """Take back the jobs a killed server left with init; call once, in the loop."""
        for job_id, fds in kept.items():
            try:
                log = JobLog(fds["log"])
                meta = json.loads(log.meta)
            except (KeyError, ValueError, OSError):
                descriptors.close_all(fds.values())
                self._init.drop(job_id)
                continue
            kept_by = {name: limit["by"] for name, limit in meta["shown"]["limits"].items()}
            group = JobGroup.found(_group_name(job_id), kept_by)
            parts = JobParts(log, fds, group)
            self._add(Job(meta["shown"], meta["digest"], parts, init=self._init, clock=self._clock), is_new=False)
        for message in told:
            self._on_init(str(message["job"]), message)
        for job in list(self._jobs.values()):
            job.start_pumps()

    # -- what callers do ----------------------------------------------------------------------------------------------

    async def start(self, spec: JobSpec) -> tuple[Job, bool]:
        """Start a job, or return the one that has this id and request already (then the second value is False).

        A program that cannot be started is a job that ended with 127 (not found) or 126 (not executable).

        Raises:
            WireError: 409 another request has this id; 429 too many jobs; 400, 413, 501, 503 it cannot be started;
                nothing is left of it then.
        """
        job = self._jobs.get(spec.id)
        is_new = job is None
        if job is None:
            job = self._launch(spec, resolve(spec, self._state))
        elif job.digest != spec.digest:
            raise WireError(409, "conflict", f"job `{spec.id}` exists and was asked for differently")
        await job.settled.wait()
        self._check_start(job)
        return job, is_new

    def get(self, job_id: str) -> Job:
        """The job.

        Raises:
            WireError: 404.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise WireError(404, "not_found", f"there is no job `{job_id[:80]}`", hint="it may be over and forgotten")
        return job

    def find(self, job_id: str) -> Job | None:
        """The job, if there is one."""
        return self._jobs.get(job_id)

    def all(self) -> list[Job]:
        """Every job, oldest first."""
        return list(self._jobs.values())

    async def delete(self, job_id: str) -> Job:
        """End a job with everything it started, and forget it. Returns it as it was last."""
        job = self.get(job_id)
        await job.kill_tree()
        self._forget(job)
        return job

    # -- making one ---------------------------------------------------------------------------------------------------

    def _launch(self, spec: JobSpec, program: Spec) -> Job:
        ring_bytes = self._make_room(spec.ring_bytes)
        group, kept_by = JobGroup.create(_group_name(spec.id), spec.limits, may_group=not self._state.settings.root)
        if kept_by.get("memory_mib") == "rlimit":
            program.data_bytes = (spec.limits.memory_mib or 0) * wire.MIB
        shown = _shown(spec, kept_by, ring_bytes)
        meta = json.dumps({"shown": shown, "digest": spec.digest}, ensure_ascii=False)
        fds: dict[str, int] = {}
        try:
            log = JobLog.create(spec.id, ring_bytes=ring_bytes, meta=meta.encode("utf-8", "surrogatepass"))
            fds["log"] = log.fd
            fds["spec"] = descriptors.memfd_of("sbx-spec", program.to_bytes())
            fds.update(_plumbing(spec, program))
            fds.update(_side_file(spec))
            fds.update(group.open_doors())
            self._init.spawn(spec.id, fds)
        except (OSError, WireError) as exc:
            group.remove()
            descriptors.close_all(fds.values())
            if isinstance(exc, WireError):
                raise
            raise WireError(503, "cannot_start", f"job `{spec.id}` cannot be started: {exc.strerror}") from exc
        descriptors.close_all(fds.pop(name) for name in list(fds) if name not in KEPT)
        job = Job(shown, spec.digest, JobParts(log, fds, group), init=self._init, clock=self._clock)
        self._add(job, is_new=True)
        job.start_pumps()
        return job

    def _check_start(self, job: Job) -> None:
        if job.failure is None or job.is_finished:
            return
        stage, number = job.failure
        if stage == "program":
            program = job.shown["argv"][0]
            code = 127 if number == errno.ENOENT else 126
            reason = "command not found" if number == errno.ENOENT else os.strerror(number)
            job.end_unstarted(code, f"sbx: {program}: {reason}\n")
            return
        if self._jobs.get(job.id) is job:
            self._forget(job)
        raise _start_error(job, stage, number)

    def _on_init(self, job_id: str, message: dict[str, Any]) -> None:
        job = self._jobs.get(job_id)
        if job is None:
            return
        job.on_init(message)
        if message["op"] == "failed":
            try:
                self._check_start(job)
            except WireError:
                return  # whoever waits for this start is told
        elif job.is_empty:
            self._settle(job)

    # -- the budget ---------------------------------------------------------------------------------------------------

    def _make_room(self, ring_bytes: int) -> int:
        """Evict finished jobs, oldest first, and settle how large a new ring may be.

        What a finished job left running writes into its pipes and is signalled through it: that one stays.
        """
        live = self._live.values()
        if len(live) >= LIVE_JOBS_MAX:
            raise WireError(
                429,
                "too_many_jobs",
                f"{len(live)} jobs are running or left something running; {LIVE_JOBS_MAX} may",
                hint="end some first",
            )
        live_bytes = sum(job.log.size_bytes if job.is_finished else job.log.ring_bytes for job in live)
        ring_bytes = ring_of(ring_bytes, live_bytes=live_bytes, live_count=len(live))
        self._evict(wire.RINGS_TOTAL_BYTES - live_bytes - ring_bytes)
        return ring_bytes

    def _evict(self, most_bytes: int) -> None:
        while len(self._over) > FINISHED_JOBS_MAX or (self._over and self._over_bytes > most_bytes):
            self._forget(next(iter(self._over.values())))

    def _add(self, job: Job, *, is_new: bool) -> None:
        self._jobs[job.id] = self._live[job.id] = job
        self._log.follow(job, is_new=is_new)
        if job.is_finished:
            self._on_finished(job)
        else:
            job.on_finished = self._on_ended

    def _on_ended(self, job: Job) -> None:
        self._log.ended(job)
        self._on_finished(job)

    def _on_finished(self, job: Job) -> None:
        if self._jobs.get(job.id) is job:
            self._settle(job)
            self.on_finished(job)

    def _settle(self, job: Job) -> None:
        """Count a finished job of which nothing runs any more among those that are over: the next start finds room."""
        if job.is_finished and job.is_empty and self._live.get(job.id) is job:
            del self._live[job.id]
            self._over[job.id] = job
            self._over_bytes += job.log.size_bytes
            self._evict(wire.RINGS_TOTAL_BYTES)

    def _forget(self, job: Job) -> None:
        if self._jobs.get(job.id) is job:
            del self._jobs[job.id]
            self._live.pop(job.id, None)
            if self._over.pop(job.id, None) is job:
                self._over_bytes -= job.log.size_bytes
        job.close()
        self._init.drop(job.id)


def ring_of(asked_bytes: int, *, live_bytes: int, live_count: int) -> int:
    """How large the ring of one more live job may be: at most half of what those that may yet come do not need."""
    reserved_bytes = _RING_BYTES_LEAST * (LIVE_JOBS_MAX - live_count - 1)
    free_bytes = wire.RINGS_TOTAL_BYTES - live_bytes - reserved_bytes
    return min(asked_bytes, max(_RING_BYTES_LEAST, free_bytes // 2))


def _terminal(size: Size, uid: int | None) -> dict[str, int]:
    try:
        return open_pair(size, uid=uid)
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.EACCES, errno.EPERM):
            raise
        raise WireError(501, "unsupported", f"this sandbox has no terminals: {exc.strerror}") from exc


def _group_name(job_id: str) -> str:
    # Init's pid: where a kernel is shared, so is the folder of groups.
    return f"sbx-job-{os.getppid()}-{job_id}"


def _nothing(_job: Job) -> None:
    """Nobody asks to be told."""


def _shown(spec: JobSpec, kept_by: Mapping[str, str], ring_bytes: int) -> dict[str, Any]:
    asked = spec.limits.asked()
    limits = {name: {"limit": asked[name], "by": by} for name, by in kept_by.items()}
    now = datetime.now(UTC).isoformat()
    return {**spec.shown(), "limits": limits, "ring_bytes": ring_bytes, "created_at": now}


def _side_file(spec: JobSpec) -> dict[str, int]:
    """What a line of a pseudo-shell gives its state back in: for init to keep, and for the program."""
    if not spec.shell_name:
        return {}
    kept = shellstate.new_file(spec.shell_name)
    try:
        return {"side": kept, "side_w": os.dup(kept)}
    except OSError:
        os.close(kept)
        raise


def _plumbing(spec: JobSpec, program: Spec) -> dict[str, int]:
    """Both ends of what the program reads and writes.

    Raises:
        OSError: Too many are open; none of these is left.
    """
    if spec.tty is not None:
        return _terminal(spec.tty.size, program.uid)
    fds: dict[str, int] = {}
    try:
        fds["out_r"], fds["out_w"] = os.pipe()
        _widen(fds["out_w"])
        fds["err_r"], fds["err_w"] = os.pipe()
        if spec.has_stdin:
            fds["in_r"], fds["in_w"] = os.pipe()
    except OSError:
        descriptors.close_all(fds.values())
        raise
    return fds


def _widen(pipe: int) -> None:
    """Let more output wait in the pipe: a quarter of the steps for the same bytes. A refusal changes nothing else."""
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        return


def _start_error(job: Job, stage: str, number: int) -> WireError:
    reason = os.strerror(number)
    match stage:
        case "cwd":
            cwd = job.shown["cwd"]
            is_missing = number in (errno.ENOENT, errno.ENOTDIR)
            message = f"the working directory (cwd) `{cwd}` cannot be used: {reason}"
            hint = "create it first" if is_missing else "begin in another one, such as /"
            return WireError(400, "cwd_not_found" if is_missing else "bad_cwd", message, hint=hint)
        case "argv":
            return WireError(413, "argv_too_long", f"argv and env of job `{job.id}` are too long for a program")
        case _ if number == errno.EPERM:
            return WireError(501, "unsupported", f"this guest may not start a job as that user: {reason}")
        case _:
            return WireError(503, "cannot_start", f"job `{job.id}` cannot be started: {reason}", hint="try again")
