"""What stands where the list would be: three different nothings, each with the next key and the command line."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from sbxtui.core.errors import SbxError
from sbxtui.core.model import ContextKind
from sbxtui.core.text import harmless, harmless_line
from sbxtui.core.values import dataclass
from sbxtui.tui.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Words:
    """A headline and lines below it."""

    headline: str
    lines: tuple[str, ...] = ()


class Notice(Static):
    """Shows words in the middle of the pane; hidden by style while there are rows."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.words: Words | None = None

    def say(self, words: Words | None) -> None:
        """Show `words`; None leaves nothing to say."""
        if words == self.words:
            return
        self.words = words
        if words is None:
            self.update("")
            return
        body = "\n\n" + "\n".join(words.lines) if words.lines else ""
        self.update(Content.assemble((words.headline, "bold"), (body, "")))


def notice_for(fleet: Fleet, opening_error: SbxError | None, isolation: str) -> Words | None:
    """Why no row is shown; None when there are rows."""
    if fleet.context is None:
        return _not_open(opening_error)
    if fleet.rows:
        return None
    if fleet.all:
        shown = harmless_line(fleet.filter.text, limit=60)
        return Words(f"none of {len(fleet.all)} matches `{shown}`", ("esc clears the filter, / changes it",))
    context = harmless_line(fleet.context.name)
    if fleet.error is not None:
        return Words(
            f"context `{context}` cannot be asked",
            (
                harmless(fleet.error.message),
                f"hint: {harmless(fleet.error.hint)}" if fleet.error.hint else "",
                "",
                "r tries again · o explains · it is also tried by itself, ever more seldom",
            ),
        )
    if fleet.is_cached:
        is_starting = fleet.context.kind is ContextKind.LOCAL and not isolation
        return Words("starting the local cloud …" if is_starting else f"asking context `{context}` …")
    return Words(
        f"no sandboxes yet in context `{context}`",
        ("enter or n makes one, or in a shell: sbx create", "", "? lists every key"),
    )


def _not_open(error: SbxError | None) -> Words:
    if error is None:
        return Words("opening the store …")
    hint = f"hint: {harmless(error.hint)}" if error.hint else ""
    return Words("sbx cannot open its store", (harmless(error.message), hint, "", "r tries again · q quits"))
