"""A tab that asks one sandbox's guest again and again, as long as somebody sees it."""

from __future__ import annotations

from typing import ClassVar

from sbxtui.core.model import Sandbox
from sbxtui.tui.fleet import key_of
from sbxtui.tui.tabs.base import Tab, View


class WatchingTab(Tab):
    """Keeps to the selected sandbox; what nobody sees is not asked for.

    Attributes:
        WATCH_GROUP: The group of the worker that asks.
        sandbox: The selected one.
    """

    WATCH_GROUP: ClassVar[str]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.sandbox: Sandbox | None = None

    def show(self, view: View) -> None:
        """Keep to the selected sandbox. Going there is no wish to ask it."""
        before, self.sandbox = self.sandbox, view.sandbox
        is_other = before is None or self.sandbox is None or key_of(before) != key_of(self.sandbox)
        if is_other:
            self.turned()
        if is_other or before is None or self.sandbox is None or before.state is not self.sandbox.state:
            self.begin_watch(is_asked=False)

    def opened(self) -> None:
        """Another store may be open now: its sandboxes are others."""
        self.begin_watch(is_asked=False)

    def brought(self) -> None:
        """The person came here: ask the sandbox."""
        self.begin_watch(is_asked=True)

    def on_show(self) -> None:
        self.begin_watch(is_asked=True)

    def on_hide(self) -> None:
        self.end_watch()

    def turned(self) -> None:
        """Another sandbox is selected, or none: show what is known of it."""

    def begin_watch(self, *, is_asked: bool) -> None:
        """Begin to ask, or stop where there is nobody to ask or to see it.

        Args:
            is_asked: Whether the person wants to know; else only what costs the sandbox nothing.
        """
        raise NotImplementedError

    def end_watch(self) -> None:
        """Ask no more."""
        self.workers.cancel_group(self, self.WATCH_GROUP)

    @property
    def is_watchable(self) -> bool:
        """Whether the tab is seen and the selected sandbox has a name here."""
        return self.display and self.main.is_open and self.sandbox is not None and self.sandbox.is_tracked

    def is_about(self, key: str) -> bool:
        """Whether what a worker tells is of the sandbox that is still selected."""
        return self.sandbox is not None and key == key_of(self.sandbox)
