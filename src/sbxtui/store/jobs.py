"""The index of jobs: which sandbox runs a job, who began it, and how it ended as far as anybody here saw.

Guests know their jobs better, but only their own and only while they live. A row is a hint where to ask.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sbxtui.core.errors import AmbiguousReference, NotFound
from sbxtui.core.jobs import LONG_S, Job, JobExit, JobState, program_of
from sbxtui.core.model import ContextName, SandboxId
from sbxtui.core.text import harmless_line
from sbxtui.store.codec import instant_of, instant_text, object_of, object_text
from sbxtui.store.db import Store, Transaction
from sbxtui.store.events import append

MAX_ROWS = 5_000
MAX_ROWS_EACH = 1_000
MAX_AGE = timedelta(days=30)
MAX_COMMAND = 4_096
_PRUNE_EVERY = 256
_TOLD_AGE = timedelta(days=1)
_GUEST = "guest:"
# Of what guests say of jobs nobody here began, this many events a look, and this many of the newest so many.
_HEARSAY_AT_ONCE = 8
_HEARSAY_SHARE, _HEARSAY_OF = 100, 1_000
_SHOWN = 5
_SHOWN_ID = 12
_COLUMNS = (
    "jobs.context, jobs.sandbox_id, job_id, boot_id, command, actor, jobs.created_at, label, has_terminal, has_stdin,"
    " ended_at, outcome, registrations.name"
)
_FROM = (
    "FROM jobs LEFT JOIN registrations"
    " ON registrations.context = jobs.context AND registrations.sandbox_id = jobs.sandbox_id"
)


class JobIndex:
    """The jobs of a home's sandboxes. Every change is an event of the sandbox, with its actor."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def started(self, job: Job) -> None:
        """Note a job that we began; noting it again changes nothing."""
        with self._store.transaction() as transaction:
            _start(transaction, job)

    def ended(self, job: Job, ending: JobExit, *, actor: str) -> None:
        """Note how a job ended. Only the first to see it makes an event; a job nobody noted is noted now."""
        with self._store.transaction() as transaction:
            _insert(transaction, _recent(as_told(job), transaction.now))
            if _end(transaction, job, ending):
                _event(transaction, job, "job.exit", actor, _exit_data(job, ending))

    def caught_up(self, told: Sequence[Job], gone: Sequence[Job] = (), *, actor: str) -> None:
        """Note what a guest says that nobody here noted, all at once.

        A guest says what it likes: the actor of a job nobody here began is the guest, and its age that of this note,
        give or take a day. Of such jobs only a few at once have events of their own, and all guests together make a
        share of the newest events at most: none drives out what others did.

        Args:
            told: Jobs that others began, or that ended unseen.
            gone: Jobs as they were noted that the guest knows no more; they are forgotten.
            actor: Who looked.
        """
        with self._store.transaction() as transaction:
            hearsay = _Hearsay(transaction, actor)
            for job in told:
                if _insert(transaction, _recent(as_told(job), transaction.now)):
                    hearsay.add(job, "job.start", _start_data(job), is_told=True)
                if job.exit is not None and _end(transaction, job, job.exit):
                    hearsay.add(job, "job.exit", _exit_data(job, job.exit), is_told=_is_noted_as_told(transaction, job))
            for job in gone:
                _delete(transaction, job)
                hearsay.add(job, "job.remove", {"job": job.id}, is_told=is_told(job))
            hearsay.close()

    def forget(self, job: Job, *, actor: str) -> None:
        """Forget a job that was ended and deleted."""
        with self._store.transaction() as transaction:
            _delete(transaction, job)
            _event(transaction, job, "job.remove", actor, {"job": job.id})

    def note(self, job: Job, kind: str, *, actor: str, **data: object) -> None:
        """Append an event about a job, like `job.signal`."""
        with self._store.transaction() as transaction:
            _event(transaction, job, kind, actor, {"job": job.id, **data})

    def is_noted(self, job: Job, kind: str) -> bool:
        """Whether there is an event of that kind about a job."""
        sql = (
            "SELECT 1 FROM events WHERE context = ? AND subject = ? AND kind = ?"
            " AND json_extract(data, '$.job') = ? LIMIT 1"
        )
        return bool(self._store.rows(sql, (job.context, job.sandbox, kind, job.id)))

    def list(self, context: str, sandbox_id: str | None = None, *, only_open: bool = False) -> list[Job]:
        """The jobs of a context's sandboxes, or of one, oldest first; not those of sandboxes without a name here.

        With `only_open`, those that nobody here saw end.
        """
        where, parameters = "jobs.context = ? AND registrations.name IS NOT NULL", [context]
        if only_open:
            where += " AND jobs.ended_at IS NULL"
        if sandbox_id is not None:
            where, parameters = f"{where} AND jobs.sandbox_id = ?", [context, sandbox_id]
        sql = f"SELECT {_COLUMNS} {_FROM} WHERE {where} ORDER BY jobs.created_at, job_id"
        return [_job_of(row) for row in self._store.rows(sql, parameters)]

    def find(self, context: str, reference: str, sandbox_id: str | None = None) -> Job:
        """The job an id, or a prefix that only one id has, means.

        Raises:
            NotFound: None is known here. AmbiguousReference: Several fit.
        """
        return pick(self.list(context, sandbox_id), reference)


def pick(jobs: Sequence[Job], reference: str) -> Job:
    """The one of `jobs` that an id or a unique prefix of one means; a whole id counts before prefixes.

    Raises:
        NotFound: None fits. AmbiguousReference: Several fit; `details` lists them.
    """
    fitting = [job for job in jobs if job.id == reference]
    if not fitting and reference:
        fitting = [job for job in jobs if job.id.startswith(reference)]
    shown_reference = harmless_line(reference, limit=64)
    if not fitting:
        raise NotFound(f"no job `{shown_reference}` is known here", hint="`sbx jobs --all` lists them")
    if len(fitting) == 1:
        return fitting[0]
    shown = ", ".join(f"`{job.id[:_SHOWN_ID]}` in `{job.sandbox}`" for job in fitting[:_SHOWN])
    more = f" and {len(fitting) - _SHOWN} more" if len(fitting) > _SHOWN else ""
    raise AmbiguousReference(
        f"`{shown_reference}` fits {len(fitting)} jobs: {shown}{more}",
        hint="write more of the id, or name the sandbox before it",
        details={"jobs": [job.id for job in fitting]},
    )


def as_told(job: Job) -> Job:
    """A job nobody here began, as what it is: the word of its guest."""
    return dataclasses.replace(job, actor=f"{_GUEST}{job.sandbox or job.sandbox_id}")


def is_told(job: Job) -> bool:
    """Whether a noted job is only known by the word of its guest."""
    return job.actor.startswith(_GUEST)


def _recent(job: Job, now: datetime) -> Job:
    # Rows are pruned by age: one that claims to be old would be forgotten and noted anew, with its event, for ever.
    return dataclasses.replace(job, created_at=max(job.created_at, now - _TOLD_AGE))


def prune(transaction: Transaction) -> int:
    """Forget jobs older than 30 days, all but the newest 5,000, and those of sandboxes without a name here."""
    return transaction.execute(
        "DELETE FROM jobs WHERE created_at < ? OR created_at < coalesce("
        "  (SELECT created_at FROM jobs ORDER BY created_at DESC LIMIT 1 OFFSET ?), '')"
        " OR NOT EXISTS (SELECT 1 FROM registrations AS r WHERE r.context = jobs.context"
        "  AND r.sandbox_id = jobs.sandbox_id)",
        (instant_text(transaction.now - MAX_AGE), MAX_ROWS - 1),
    )


def _start(transaction: Transaction, job: Job) -> None:
    if not _insert(transaction, job):
        return
    seq = _event(transaction, job, "job.start", job.actor, _start_data(job))
    if seq % _PRUNE_EVERY == 0:
        prune(transaction)


def _start_data(job: Job) -> dict[str, object]:
    # Events are shown to everybody.
    return {"job": job.id, "program": program_of(job.command)}


def _exit_data(job: Job, ending: JobExit) -> dict[str, object]:
    # Of one that took long, somebody waits to hear.
    took = {"took_s": round(ending.duration_s)} if ending.duration_s >= LONG_S else {}
    return {"job": job.id, "exit_code": ending.exit_code, **took}


def _end(transaction: Transaction, job: Job, ending: JobExit) -> bool:
    """Whether this is the first that is heard of its end."""
    changed = transaction.execute(
        "UPDATE jobs SET ended_at = ?, outcome = ?"
        " WHERE context = ? AND sandbox_id = ? AND job_id = ? AND ended_at IS NULL",
        (instant_text(transaction.now), object_text(asdict(ending)), job.context, job.sandbox_id, job.id),
    )
    return changed > 0


def _delete(transaction: Transaction, job: Job) -> None:
    transaction.execute("DELETE FROM jobs WHERE context = ? AND sandbox_id = ? AND job_id = ?", _key(job))


def _is_noted_as_told(transaction: Transaction, job: Job) -> bool:
    row = transaction.row(
        "SELECT actor LIKE ? FROM jobs WHERE context = ? AND sandbox_id = ? AND job_id = ?", (f"{_GUEST}%", *_key(job))
    )
    return row is None or bool(row[0])


def _key(job: Job) -> tuple[str, str, str]:
    return job.context, job.sandbox_id, job.id


class _Hearsay:
    """The events of one look at a guest: those about jobs of somebody here as they are, the others only so far."""

    def __init__(self, transaction: Transaction, actor: str) -> None:
        self._transaction = transaction
        self._actor = actor
        self._told: list[tuple[Job, str, dict[str, object]]] = []

    def add(self, job: Job, kind: str, data: dict[str, object], *, is_told: bool) -> None:
        """An event; with `is_told` there is only the guest's word that the job ever was."""
        if is_told:
            self._told.append((job, kind, data))
        else:
            _event(self._transaction, job, kind, self._actor, data)

    def close(self) -> None:
        """Append what is left, or one event that counts it, or nothing."""
        room = _HEARSAY_SHARE - self._newest()
        if self._told and room > 0:
            is_few = len(self._told) <= min(_HEARSAY_AT_ONCE, room)
            for job, kind, data in self._told if is_few else [self._counted()]:
                _event(self._transaction, job, kind, as_told(job).actor, data)
        if len(self._told) > _HEARSAY_AT_ONCE:
            prune(self._transaction)

    def _counted(self) -> tuple[Job, str, dict[str, object]]:
        job, count = self._told[0][0], len({job.id for job, _, _ in self._told})
        return job, "job.told", {"jobs": count, "reason": f"its guest tells of {count} jobs nobody here began"}

    def _newest(self) -> int:
        row = self._transaction.row(
            "SELECT count(*) FROM events WHERE seq > (SELECT max(seq) FROM events) - ? AND actor LIKE ?",
            (_HEARSAY_OF, f"{_GUEST}%"),
        )
        return int(row[0]) if row else 0


def _insert(transaction: Transaction, job: Job) -> bool:
    created_at = min(job.created_at, transaction.now)
    command = harmless_line(job.command, limit=MAX_COMMAND)
    is_new = bool(
        transaction.execute(
            "INSERT OR IGNORE INTO jobs (context, sandbox_id, job_id, boot_id, command, actor, label, has_terminal,"
            " has_stdin, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(job.context, job.sandbox_id, job.id, job.boot_id, command, job.actor, job.label),
                *(job.has_terminal, job.has_stdin, instant_text(created_at)),
            ),
        )
    )
    if is_new:
        _prune_one(transaction, job)
    return is_new


def _prune_one(transaction: Transaction, job: Job) -> None:
    """A sandbox has its share of rows: those that were over first make room, then the oldest."""
    transaction.execute(
        "DELETE FROM jobs WHERE context = ? AND sandbox_id = ? AND job_id IN (SELECT job_id FROM jobs"
        " WHERE context = ? AND sandbox_id = ? AND job_id <> ? ORDER BY ended_at IS NULL DESC, created_at DESC"
        " LIMIT -1 OFFSET ?)",
        (*(job.context, job.sandbox_id) * 2, job.id, MAX_ROWS_EACH - 1),
    )


def _event(transaction: Transaction, job: Job, kind: str, actor: str, data: dict[str, object]) -> int:
    row = transaction.row(
        "SELECT name FROM registrations WHERE context = ? AND sandbox_id = ?", (job.context, job.sandbox_id)
    )
    subject = row[0] if row else job.sandbox or job.sandbox_id
    return append(transaction, context=job.context, kind=kind, subject=subject, actor=actor, data=data)


def _job_of(row: tuple[Any, ...]) -> Job:
    (context, sandbox_id, job_id, boot_id, command, actor, created_at, label, has_terminal, has_stdin) = row[:10]
    ended_at, outcome, name = row[10:]
    return Job(
        context=ContextName(context),
        sandbox_id=SandboxId(sandbox_id),
        id=job_id,
        boot_id=boot_id,
        command=command,
        actor=actor,
        created_at=instant_of(created_at),
        sandbox=name or "",
        label=label,
        state=JobState.EXITED if ended_at else JobState.RUNNING,
        has_terminal=bool(has_terminal),
        has_stdin=bool(has_stdin),
        exit=_exit_of(object_of(outcome)) if ended_at else None,
        ended_at=instant_of(ended_at) if ended_at else None,
    )


def _exit_of(told: dict[str, Any]) -> JobExit | None:
    """Fields that a newer sbx added are left out."""
    names = JobExit.__dataclass_fields__
    return JobExit(**{name: value for name, value in told.items() if name in names}) if "code" in told else None
