"""The tabs of the detail, in order. A new tab is its file and its line here.

Their modules are imported when they are first needed: the first frame shows one tab, and would wait for all others.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import cast

from sbxtui.core.values import dataclass
from sbxtui.tui.actions import ACTIONS, EVERYWHERE, Action, Needs
from sbxtui.tui.tabs.base import Tab


@dataclass(frozen=True, slots=True)
class TabSpec:
    """One tab: its id (also of its widget, and of its module), its name on screen, and what it is for.

    The module has the class, `<Label>Tab`, and where the tab brings actions, `ACTIONS`; `needs`: what those need.
    """

    id: str
    label: str
    consequence: str
    needs: Needs = Needs.ONE

    @property
    def kind(self) -> type[Tab]:
        """Its class; imports its module."""
        return cast("type[Tab]", getattr(self._module, f"{self.label}Tab"))

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions it brings; imports its module."""
        return cast("tuple[Action, ...]", getattr(self._module, "ACTIONS", ()))

    @property
    def _module(self) -> ModuleType:
        return import_module(f"sbxtui.tui.tabs.{self.id}")


TABS: tuple[TabSpec, ...] = (
    TabSpec("overview", "Overview", "What is known of the sandbox."),
    TabSpec("logs", "Logs", "What all its commands say, live."),
    TabSpec("metrics", "Metrics", "What it uses, now and in the last hour."),
    TabSpec("shell", "Shell", "Lines in its shell, which you share with others."),
    TabSpec("jobs", "Jobs", "Every command in it, whoever began it."),
    TabSpec("files", "Files", "Its files, to look into and to copy."),
    TabSpec("sync", "Sync", "A folder here and one there, kept equal."),
    TabSpec("ports", "Ports", "What listens in it, and what of it is here."),
    TabSpec("activity", "Activity", "Every change, as the line that does it.", Needs.NOTHING),
)


def first_actions() -> tuple[Action, ...]:
    """What can be done before the tabs are there: the screen's actions, and one per tab."""
    openers = [
        Action(f"tab_{spec.id}", str(at), spec.label.lower(), "", spec.consequence, 0, EVERYWHERE)
        for at, spec in enumerate(TABS, start=1)
    ]
    return (*ACTIONS, *openers)


def all_actions() -> tuple[Action, ...]:
    """The whole registry: those, and what the tabs bring; imports them all."""
    own = [replace(action, needs=spec.needs) for spec in TABS for action in spec.actions]
    return (*first_actions(), *own)
