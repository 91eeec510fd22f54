"""The one-line bars: header, status and keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import monotonic

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from sbxtui.core.model import Context, ContextKind
from sbxtui.core.pricing import least_usd_per_hour
from sbxtui.core.text import harmless_line
from sbxtui.tui.actions import Action
from sbxtui.tui.fleet import Fleet
from sbxtui.tui.keymap import footer_actions
from sbxtui.tui.words import counts_text, is_isolated

# How long the status line tells of what was done.
_TOLD_S = 10.0
_ASIDE = re.compile(r" \([^()]*\)")


class Bar(Static):
    """One line that is redrawn only when its text changes."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown: Content | None = None

    def say(self, content: Content) -> None:
        """Show `content`."""
        if content != self._shown:
            self._shown = content
            self.update(content, layout=False)


class Header(Bar):
    """Where we are: context, isolation in words, counts, what is paid at the least, and how long machines live."""

    def show(self, fleet: Fleet, isolation: str, *, is_read_only: bool) -> None:
        """Draw it for the fleet's context."""
        limits = "read-only  " * is_read_only
        if fleet.context is None:
            self.say(Content.assemble((" sbx  ", "bold $sbx-key"), (limits, "bold $sbx-warn")))
            return
        place, tone = isolation_words(fleet.context, isolation)
        name = context_words(fleet.context)
        least = len(" sbx  ") + cell_len(name) + 2 * len("  ") + len(limits)
        if least + cell_len(place) + len(counts_text(fleet.all)) >= self.size.width:
            # How it is done may go before how many there are.
            place = _ASIDE.sub("", place)
        room = max(0, self.size.width - least - cell_len(place) - 1)
        facts = counts_text(fleet.all, room)
        for fact in money_and_cap(fleet):
            # What does not fit is left out whole: half a price would be a wrong one.
            facts += f"  {fact}" * (len(facts) + 2 + len(fact) <= room)
        self.say(
            Content.assemble(
                (" sbx  ", "bold $sbx-key"),
                (name, "bold"),
                ("  ", ""),
                (place, f"$sbx-{tone}"),
                ("  ", ""),
                (limits, "bold $sbx-warn"),
                (facts, "$sbx-muted"),
            )
        )


def money_and_cap(fleet: Fleet) -> list[str]:
    """What the running sandboxes cost an hour at the least, and when the platform ends each; nothing where neither is.

    A local cloud costs nothing and ends nothing.
    """
    if fleet.context is None or fleet.context.kind is not ContextKind.AWS:
        return []
    price = least_usd_per_hour(fleet.context, fleet.all)
    # No machine of the platform lives longer than this, whatever it does.
    return [*([f"at least ${price:.2f}/h"] if price is not None else []), "each ends after 8h"]


def context_words(context: Context) -> str:
    """A context's name with account and region where it has them."""
    if context.kind is ContextKind.LOCAL:
        return harmless_line(context.name)
    parts = [context.name, f"…{context.account_id[-4:]}" if context.account_id else "", context.region]
    return harmless_line(" ".join(part for part in parts if part))


def isolation_words(context: Context, isolation: str) -> tuple[str, str]:
    """Isolation in words, and the tone that repeats how much to trust it."""
    if isolation:
        return harmless_line(isolation), "good" if is_isolated(isolation) else "warn"
    if context.kind is ContextKind.LOCAL:
        return "local cloud not running yet", "muted"
    return "isolation not known", "warn"


class StatusBar(Bar):
    """What is being done and for how long; else the marks; else what was done last."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._works: dict[str, tuple[str, float]] = {}
        self._last: tuple[str, str] = ("", "muted")
        self._ended = 0.0
        self._marks = 0

    @property
    def works(self) -> list[str]:
        """What is being done now, in words."""
        return [words for words, _ in self._works.values()]

    def begin(self, work: str, words: str) -> None:
        """A piece of work began, or now does something else."""
        _, since = self._works.get(work, ("", monotonic()))
        self._works[work] = (harmless_line(words), since)
        self._draw()

    def end(self, work: str, words: str, tone: str = "muted") -> None:
        """A piece of work ended with `words`."""
        self._works.pop(work, None)
        self._last = (harmless_line(words), tone)
        self._ended = monotonic()
        self._draw()

    def set_marks(self, marks: int) -> None:
        """Say how many sandboxes are marked."""
        self._marks = marks
        self._draw()

    def tick(self) -> None:
        """A second went by."""
        if self._works or self._last[0]:
            self._draw()

    def _draw(self) -> None:
        """Draw it as of now; what was done last is told for a while only."""
        if monotonic() - self._ended > _TOLD_S:
            self._last = ("", "muted")
        self.say(self._content())

    def _content(self) -> Content:
        if self._works:
            words, since = next(iter(self._works.values()))
            more = f"  and {len(self._works) - 1} more" if len(self._works) > 1 else ""
            return Content.assemble((f" {words} … {monotonic() - since:.0f}s{more}", "$sbx-busy"))
        if self._marks:
            return Content.assemble(
                (f" {self._marks} marked", "bold"), ("   p pause   d remove   esc clear", "$sbx-muted")
            )
        words, tone = self._last
        return Content.assemble((f" {words}", f"$sbx-{tone}"))


class KeyBar(Bar):
    """The keys that work where the focus is; a click does the same."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._here: Sequence[Action] = ()

    def show(self, here: Sequence[Action]) -> None:
        """Show the most useful of the actions that work here."""
        self._here = here
        self.say(Content(" ") + Content(" ").join(_key(action) for action in footer_actions(self.size.width, here)))

    def on_resize(self) -> None:
        self.show(self._here)


def _key(action: Action) -> Content:
    # Keys and labels are our own words, so that markup is safe here.
    key = action.shown_key.replace("[", r"\[")
    return Content.from_markup(f"[@click=screen.do('{action.id}')][bold $sbx-key]{key}[/] {action.label} [/]")
