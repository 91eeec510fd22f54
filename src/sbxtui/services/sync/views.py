"""Paths of a sync as people and scripts see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sbxguest.tree import Kind, State
from sbxguest.tree.entry import DIGEST_NAME
from sbxtui.core.text import harmless_line, short_size
from sbxtui.services.sync.model import Change, Op, Path
from sbxtui.services.sync.review import may_run
from sbxtui.services.sync.status import LinkState, shown
from sbxtui.services.sync.transfer import size_of
from sbxtui.store.ancestors import Dispute
from sbxtui.store.links import Link, Wanted

NOT_RUNNING = "not running"


@dataclass(frozen=True, slots=True)
class ConflictView:
    """A path both sides changed. `path` are its bytes."""

    path: bytes
    local: State | None
    guest: State | None

    @classmethod
    def of(cls, dispute: Dispute) -> ConflictView:
        """Of what is kept."""
        return cls(dispute.path, dispute.local, dispute.guest)

    @property
    def path_text(self) -> str:
        """The path on one line."""
        return harmless_line(shown(self.path), limit=4096)

    @property
    def local_words(self) -> str:
        """What this machine has."""
        return words_of(self.local)

    @property
    def guest_words(self) -> str:
        """What the sandbox has."""
        return words_of(self.guest)

    def as_json(self) -> dict[str, object]:
        """As scripts see it."""
        return {"path": shown(self.path), "local": state_json(self.local), "guest": state_json(self.guest)}


@dataclass(frozen=True, slots=True)
class SyncView:
    """How a sync is, as far as anybody knows.

    Attributes:
        root: The folder of this machine.
        to: That of the sandbox; empty for its work folder.
        mode: Which way changes go.
        state: The word of a `LinkState`; `not running` where nobody acts on it.
        is_detached: Whether the runner acts on it.
        is_paused: Whether a person wants it paused.
        seen_at: When who acts on it told last.
        said: The figures it told, as `Status.as_json` names them.
    """

    root: str
    to: str
    mode: str
    state: str
    is_detached: bool
    is_paused: bool
    seen_at: datetime
    said: Mapping[str, Any]

    @classmethod
    def of(cls, link: Link) -> SyncView:
        """Of a link."""
        told = str(link.status.get("state", LinkState.CONNECTING.value))
        return cls(
            root=str(link.spec.get("root", "")),
            to=str(link.spec.get("to", "")),
            mode=str(link.spec.get("mode", "")),
            state=told if link.is_served else NOT_RUNNING,
            is_detached=link.is_detached,
            is_paused=link.wanted is Wanted.PAUSED,
            seen_at=link.seen_at,
            said=link.status,
        )

    @property
    def reason(self) -> str:
        """Why it is halted, offline or without hints; empty when all is well."""
        return str(self.said.get("reason") or self.said.get("watch_trouble") or "")

    @property
    def halts(self) -> tuple[str, ...]:
        """The codes of the reasons it is halted for."""
        return tuple(str(code) for code in self.said.get("halts") or ())

    def count(self, key: str) -> int:
        """One of the figures."""
        value = self.said.get(key)
        return value if isinstance(value, int) else 0

    def seconds(self, key: str) -> float | None:
        """One of the durations; None where it is not known."""
        value = self.said.get(key)
        return float(value) if isinstance(value, int | float) else None

    def scan_age_s(self, now: datetime) -> float | None:
        """How long ago both sides were looked at as a whole; None before the first time."""
        then_s = self.seconds("last_scan_age_s")
        return None if then_s is None else round(then_s + max(0.0, (now - self.seen_at).total_seconds()), 1)

    @property
    def problems(self) -> tuple[tuple[str, str], ...]:
        """The first paths that are left alone, and the word for why."""
        return tuple((str(one.get("path")), str(one.get("code"))) for one in self.said.get("problems") or ())


_WORDS = {Op.MKDIR: "folder", Op.CHMOD: "mode", Op.DELETE: "deleted", Op.RMDIR: "no folder"}


@dataclass(frozen=True, slots=True)
class ChangeView:
    """A change somebody would make. `may_run`: of a file this machine may run without being asked."""

    path: Path
    word: str
    size_bytes: int
    may_run: bool

    @classmethod
    def of(cls, change: Change, source: Mapping[Path, State]) -> ChangeView:
        """Of a step, and what stands where its content comes from."""
        word = _WORDS.get(change.op) or ("new" if change.expect is None else "edited")
        size_bytes = size_of(source.get(change.path)) if change.op is Op.PUT else 0
        return cls(change.path, word, size_bytes, change.entry is not None and may_run(change.path))

    @property
    def path_text(self) -> str:
        """The path on one line."""
        return harmless_line(shown(self.path), limit=4096)

    @property
    def size_words(self) -> str:
        """How large its content is, if it has one."""
        return f"  ({short_size(self.size_bytes)})" if self.size_bytes else ""

    def as_json(self) -> dict[str, object]:
        """As scripts see it."""
        return {"path": shown(self.path), "change": self.word, "size_bytes": self.size_bytes, "may_run": self.may_run}


def words_of(state: State | None) -> str:
    """What stands somewhere, in a word or two."""
    if state is None:
        return "nothing"
    if state.kind is Kind.DIR:
        return "folder"
    if state.kind is Kind.LINK:
        return "link"
    size = f", {short_size(state.stamp.size_bytes)}" if state.stamp is not None else ""
    return f"{'program' if state.is_executable else 'file'}{size}"


def state_json(state: State | None) -> dict[str, object] | None:
    """What stands somewhere, for scripts."""
    if state is None:
        return None
    is_file = state.kind is Kind.FILE
    return {
        "kind": state.kind.value,
        DIGEST_NAME: state.content.hex() if is_file else None,
        "target": shown(state.content) if state.kind is Kind.LINK else None,
        "executable": state.is_executable,
        "size_bytes": state.stamp.size_bytes if is_file and state.stamp is not None else None,
    }
