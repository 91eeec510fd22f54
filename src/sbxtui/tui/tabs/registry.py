"""The tabs of the detail, in order. A new tab is its file and its line here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sbxtui.tui.actions import ACTIONS, EVERYWHERE, Action, Needs
from sbxtui.tui.tabs import activity, files, jobs, logs, metrics, overview, ports, shell, sync, syncasking
from sbxtui.tui.tabs.base import Tab


@dataclass(frozen=True, slots=True)
class TabSpec:
    """One tab: its id (also of its widget), its name on screen, its class, and the actions it brings.

    `needs`: what its actions need.
    """

    id: str
    label: str
    kind: type[Tab]
    actions: tuple[Action, ...] = ()
    consequence: str = ""
    needs: Needs = Needs.ONE


TABS: tuple[TabSpec, ...] = (
    TabSpec("overview", "Overview", overview.OverviewTab, consequence="What is known of the sandbox."),
    TabSpec("logs", "Logs", logs.LogsTab, logs.ACTIONS, "What all its commands say, live."),
    TabSpec("metrics", "Metrics", metrics.MetricsTab, consequence="What it uses, now and in the last hour."),
    TabSpec("shell", "Shell", shell.ShellTab, shell.ACTIONS, "Lines in its shell, which you share with others."),
    TabSpec("jobs", "Jobs", jobs.JobsTab, jobs.ACTIONS, "Every command in it, whoever began it."),
    TabSpec("files", "Files", files.FilesTab, files.ACTIONS, "Its files, to look into and to copy."),
    TabSpec("sync", "Sync", sync.SyncTab, syncasking.ACTIONS, "A folder here and one there, kept equal."),
    TabSpec("ports", "Ports", ports.PortsTab, ports.ACTIONS, "What listens in it, and what of it is here."),
    TabSpec(
        "activity",
        "Activity",
        activity.ActivityTab,
        activity.ACTIONS,
        "Every change, as the line that does it.",
        Needs.NOTHING,
    ),
)


def all_actions() -> tuple[Action, ...]:
    """The whole registry: the screen's actions, one per tab, and those the tabs bring."""
    own = [replace(action, needs=spec.needs) for spec in TABS for action in spec.actions]
    openers = [
        Action(f"tab_{spec.id}", str(at), spec.label.lower(), "", spec.consequence, 0, EVERYWHERE)
        for at, spec in enumerate(TABS, start=1)
    ]
    return (*ACTIONS, *openers, *own)
