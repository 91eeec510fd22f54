"""What a link keeps equal, as somebody asks for it and as its row has it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path as FilePath
from typing import TypeVar

from sbxtui.core.errors import UsageError
from sbxtui.core.paths import is_folder
from sbxtui.services.sync.model import Mode, OnConflict
from sbxtui.store.links import Link

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class SyncSpec:
    """What a link keeps equal.

    Attributes:
        root: The folder of this machine, absolute.
        to: The folder of the sandbox; empty for its work folder.
        mode: Which way changes go.
        on_conflict: What becomes of conflicts.
    """

    root: str
    to: str
    mode: Mode
    on_conflict: OnConflict = OnConflict.STOP

    def as_row(self) -> dict[str, object]:
        """As a link's row has it."""
        return {"root": self.root, "to": self.to, "mode": self.mode.value, "on_conflict": self.on_conflict.value}

    @classmethod
    def of(cls, link: Link) -> SyncSpec:
        """Of a link's row.

        Raises:
            StoreTooNew: It has a newer sbx's word.
        """
        said = link.spec
        try:
            mode, on_conflict = Mode(said.get("mode", "push")), OnConflict(said.get("on_conflict", "stop"))
        except ValueError as exc:
            raise link.too_new() from exc
        return cls(str(said["root"]), str(said.get("to", "")), mode, on_conflict)

    @classmethod
    def asked(cls, folder: str, to: str, mode: str, on_conflict: str, *, accepts_deletes: bool = False) -> SyncSpec:
        """As somebody asks for it.

        Raises:
            UsageError: There is no such folder or word, or one that does not go with the others.
        """
        spec = cls(local_root(folder), to, _word(Mode, "mode", mode), _word(OnConflict, "on-conflict", on_conflict))
        if accepts_deletes and spec.mode is not Mode.MIRROR:
            raise UsageError("only a mirror deletes what only the sandbox has", hint="leave `--accept-deletes` out")
        if spec.on_conflict in (OnConflict.GUEST, OnConflict.MERGE) and spec.mode is not Mode.TWO_WAY:
            raise UsageError(
                f"`--on-conflict {spec.on_conflict}` changes files here, and this sync does not",
                hint="add --mode two-way",
            )
        return spec


def local_root(text: str) -> str:
    """The folder a person names, as links keep it: absolute, without links in its path.

    Raises:
        UsageError: There is no folder there.
    """
    try:
        root = os.path.realpath(text)
    except OSError as exc:
        # A relative one, in a working folder that somebody deleted.
        raise UsageError(f"{text} is no folder on this machine: {exc.strerror}") from exc
    if not is_folder(FilePath(root)):
        raise UsageError(f"{text} is no folder on this machine", hint="name a folder that is there")
    return root


def _word(kind: type[E], name: str, said: str) -> E:
    try:
        return kind(said)
    except ValueError as exc:
        raise UsageError(f"{name} `{said}` is not possible", hint=f"one of {', '.join(kind)}") from exc
