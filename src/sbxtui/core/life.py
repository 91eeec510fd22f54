"""How a sandbox has lived, and what becomes of it by itself and when. Pure.

Of its states a home knows what its faces saw: a suspension that nobody watched counts as running until it was seen, so
costs told are rather too high. All windows are the platform's; a local cloud that was made to run faster divides them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sbxtui.core.model import Context, ContextKind, IdlePolicy, Sandbox, SandboxState
from sbxtui.core.pricing import Cost, Prices, Usage, about_text, cost_of, prices_for, usd_text
from sbxtui.core.text import iso
from sbxtui.core.values import dataclass

if TYPE_CHECKING:
    from sbxtui.core.jobs import Job

# The fact of a row that holds a `Lived`.
LIVED = "lived"
BUDGET = "budget_usd"
# The kind of links that make traffic on purpose.
KEEP_AWAKE = "keep-awake"
# The event before it.
CAP = "sandbox.cap"
# How many minutes before the cap the last warning was.
CAP_TOLD = "cap_told_min"
CAP_WARNINGS_MIN = (15, 5)
# The others last for moments, or are no states at all.
_COUNTED = (SandboxState.RUNNING, SandboxState.SUSPENDED, SandboxState.TERMINATED)


@dataclass(frozen=True, slots=True)
class Lived:
    """The times of a sandbox up to `since`, from when on it has been in `state`."""

    state: SandboxState
    since: datetime
    running_s: float = 0.0
    suspended_s: float = 0.0
    suspends: int = 0
    resumes: int = 0

    @classmethod
    def of(cls, facts: Mapping[str, object], created_at: datetime) -> Lived:
        """Out of a row's facts; without any, it has been running since it was made."""
        told = facts.get(LIVED)
        if isinstance(told, dict):
            try:
                return cls(
                    SandboxState(told["state"]),
                    datetime.fromisoformat(told["since"]),
                    float(told["running_s"]),
                    float(told["suspended_s"]),
                    int(told["suspends"]),
                    int(told["resumes"]),
                )
            except (KeyError, ValueError, TypeError):
                pass
        return cls(SandboxState.RUNNING, created_at)

    def as_fact(self) -> dict[str, object]:
        """As a row's facts hold it."""
        return {
            "state": self.state.value,
            "since": iso(self.since),
            "running_s": round(self.running_s, 3),
            "suspended_s": round(self.suspended_s, 3),
            "suspends": self.suspends,
            "resumes": self.resumes,
        }

    def seen(self, state: SandboxState, at: datetime) -> Lived:
        """After a look at `at` found it in `state`; itself, if that is nothing new."""
        if state not in _COUNTED or state is self.state:
            return self
        return replace(
            self._until(at),
            state=state,
            since=at,
            suspends=self.suspends + (state is SandboxState.SUSPENDED),
            resumes=self.resumes + (state is SandboxState.RUNNING),
        )

    def usage(self, now: datetime, scale: float) -> Usage:
        """All of it up to now, in the platform's seconds."""
        total = self._until(now)
        return Usage(total.running_s * scale, total.suspended_s * scale, self.suspends, self.resumes)

    def _until(self, at: datetime) -> Lived:
        span_s = max(0.0, (at - self.since).total_seconds())
        if self.state is SandboxState.TERMINATED:
            return self
        if self.state is SandboxState.SUSPENDED:
            return replace(self, suspended_s=self.suspended_s + span_s)
        return replace(self, running_s=self.running_s + span_s)


@dataclass(frozen=True, slots=True)
class Life:
    """What becomes of a sandbox by itself. None is: not as far as is known.

    Attributes:
        suspends_at: The earliest moment at which it may be suspended for being idle.
        is_busy: A job runs in it, as far as this home knows. That alone keeps nothing awake.
        deleted_at: When the platform ends it, suspended as it is.
        ends_at: Its cap.
    """

    idle: IdlePolicy | None = None
    is_busy: bool = False
    suspends_at: datetime | None = None
    deleted_at: datetime | None = None
    ends_at: datetime | None = None

    def left_s(self, now: datetime, scale: float = 1.0) -> float | None:
        """The platform's seconds to the cap."""
        return None if self.ends_at is None else max(0.0, (self.ends_at - now).total_seconds() * scale)


def life_of(sandbox: Sandbox, jobs: Iterable[Job], *, scale: float = 1.0) -> Life:
    """What becomes of a sandbox by itself, as far as its row and the jobs known here tell."""
    idle = sandbox.idle
    ends_at = None
    if sandbox.max_duration_s:
        ends_at = sandbox.created_at + timedelta(seconds=sandbox.max_duration_s / scale)
    lived = Lived.of(sandbox.facts, sandbox.created_at)
    if sandbox.state is SandboxState.SUSPENDED and idle is not None:
        since = lived.since if lived.state is SandboxState.SUSPENDED else (sandbox.seen_at or datetime.now(UTC))
        deleted_at = since + timedelta(seconds=idle.suspended_s / scale)
        return Life(idle, False, None, min(filter(None, (deleted_at, ends_at))), ends_at)
    if sandbox.state is not SandboxState.RUNNING:
        return Life(idle, ends_at=None if sandbox.state.is_gone else ends_at)
    own = [job for job in jobs if job.sandbox_id == sandbox.id]
    is_busy = any(not job.is_over for job in own)
    if idle is None:
        return Life(None, is_busy, ends_at=ends_at)
    active_at = max([lived.since, sandbox.created_at, *(job.ended_at or job.created_at for job in own)])
    return Life(idle, is_busy, active_at + timedelta(seconds=idle.max_idle_s / scale), None, ends_at)


@dataclass(frozen=True, slots=True)
class Bill:
    """A sandbox with what it costs and what becomes of it. `is_paid` is false where it is what AWS would charge.

    `running_h` is what an hour costs while it runs, in USD.
    """

    sandbox: Sandbox
    life: Life
    cost: Cost
    is_paid: bool
    running_h: float
    budget_usd: float | None = None


def bill_of(context: Context, sandbox: Sandbox, jobs: Iterable[Job], now: datetime, *, scale: float = 1.0) -> Bill:
    """What a sandbox has cost so far and goes on to cost; `jobs` are those known of it."""
    life = life_of(sandbox, jobs, scale=scale)
    left_s = None if sandbox.state.is_gone else life.left_s(now, scale)
    budget = sandbox.facts.get(BUDGET)
    return Bill(
        sandbox,
        life,
        cost_now(context, sandbox, now, scale=scale, left_s=left_s),
        _is_paid(context),
        _prices(context, sandbox).running_h,
        float(budget) if isinstance(budget, int | float) else None,
    )


def cost_now(
    context: Context, sandbox: Sandbox, now: datetime, *, scale: float = 1.0, left_s: float | None = None
) -> Cost:
    """The cost on a bill, for many sandboxes at a time. `left_s` is how long it lives on, if that matters."""
    lived = Lived.of(sandbox.facts, sandbox.created_at)
    is_unknown = sandbox.state is SandboxState.UNKNOWN
    # What cannot be asked is not free: it goes on as it was last seen.
    state = lived.state if is_unknown else sandbox.state
    cost = cost_of(_prices(context, sandbox), lived.usage(now, scale), state, left_s=left_s)
    # It may have been suspended without anybody here to see it, and counts as having run then.
    is_guess = is_unknown or sandbox.idle is not None
    return replace(cost, is_estimate=True) if is_guess and not cost.is_estimate else cost


def _prices(context: Context, sandbox: Sandbox) -> Prices:
    memory = sandbox.facts.get("memory_mib")
    return prices_for(context, memory if isinstance(memory, int) else 0)


def spent_usd(context: Context, sandbox: Sandbox, now: datetime, *, scale: float = 1.0) -> float | None:
    """What a sandbox has cost so far, for filters; None for one without a name here, of which nothing is known."""
    return cost_now(context, sandbox, now, scale=scale).so_far if sandbox.is_tracked else None


def money_words(context: Context, sandboxes: Iterable[Sandbox], now: datetime) -> list[str]:
    """What the sandboxes that have names here have cost so far, the longest wording first; none where there are none.

    Where nothing is paid it is what AWS would charge, and says so; then what an hour costs is told, too.
    """
    costs = [cost_now(context, one, now) for one in sandboxes if one.is_tracked]
    if not costs:
        return []
    so_far = sum(cost.so_far for cost in costs)
    if _is_paid(context):
        guess = "about " * any(cost.is_estimate for cost in costs)
        return [f"{guess}{usd_text(so_far)} so far"]
    spent = f"{about_text(so_far)} so far"
    return [f"on AWS {about_text(sum(cost.per_hour for cost in costs))}/h, {spent}", f"on AWS {spent}"]


def first_end_words(sandboxes: Iterable[Sandbox], now: datetime) -> str:
    """Which of the sandboxes that have names here ends first by itself, and when; empty where none does."""
    lives = [(life_of(one, ()), one.name) for one in sandboxes if one.is_tracked]
    ends = [(at, name) for life, name in lives if (at := life.deleted_at or life.ends_at) is not None]
    at, name = min(ends, default=(None, ""))
    return "" if at is None else f"{name} ends in {_span(at - now)}"


def _is_paid(context: Context) -> bool:
    return context.kind is ContextKind.AWS and not context.endpoint_url


def cap_warning(life: Life, sandbox: Sandbox, now: datetime, scale: float) -> tuple[int, dict[str, object]] | None:
    """How many minutes there are to the cap, and what to say of it, where that was not said yet; else None."""
    left_s = life.left_s(now, scale)
    if left_s is None or life.ends_at is None or sandbox.state.is_gone:
        return None
    told = sandbox.facts.get(CAP_TOLD)
    due = [minutes for minutes in CAP_WARNINGS_MIN if left_s <= 60 * minutes]
    if not due or (isinstance(told, int) and told <= min(due)):
        return None
    hint = f"sbx cp -r {sandbox.name}:{sandbox.workdir} . saves its files"
    return min(due), {"ends_at": iso(life.ends_at), "hint": hint}


def bill_json(bill: Bill) -> dict[str, object]:
    """The cost and the life of a sandbox as scripts see them. `paid` is false for the local cloud: see `is_paid`."""
    life, cost = bill.life, bill.cost
    return {
        "cost": {
            "usd_per_hour": round(cost.per_hour, 6),
            "usd_so_far": round(cost.so_far, 6),
            "usd_at_cap": None if cost.at_cap is None else round(cost.at_cap, 6),
            "budget_usd": bill.budget_usd,
            "estimate": cost.is_estimate,
            "paid": bill.is_paid,
        },
        "life": {
            "idle_s": life.idle.max_idle_s if life.idle else None,
            "busy": life.is_busy,
            "suspends_at": _iso(life.suspends_at),
            "deleted_at": _iso(life.deleted_at),
            "ends_at": _iso(life.ends_at),
        },
    }


def life_words(life: Life, now: datetime) -> str:
    """What becomes of a sandbox by itself, for people; empty where nothing does."""
    parts = []
    if life.suspends_at is not None:
        due = "any moment" if life.suspends_at <= now else f"in {_span(life.suspends_at - now)} at the earliest"
        parts.append(f"suspended for being idle {due}" + ", though a job runs" * life.is_busy)
    if life.deleted_at is not None:
        parts.append(f"deleted in {_span(life.deleted_at - now)} unless it is resumed")
    if life.ends_at is not None and life.ends_at != life.deleted_at:
        parts.append(f"ends in {_span(life.ends_at - now)}, whatever it does")
    return "; ".join(parts)


def _span(delta: timedelta) -> str:
    seconds = max(0, int(delta.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    minutes = seconds // 60
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def _iso(instant: datetime | None) -> str | None:
    return iso(instant) if instant else None
