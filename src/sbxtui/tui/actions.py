"""Every action of the dashboard, once. Bindings, footer, help and palette are made from this list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a person can do.

    `keys` are textual's names, comma-separated; `shown_key` is what a person reads. `cli` is the line that does the
    same, empty where only the screen changes. `rank` orders the footer; 0 keeps the action out of it.
    """

    id: str
    keys: str
    shown_key: str
    label: str
    cli: str = ""
    consequence: str = ""
    rank: int = 0
    group: str = "Sandboxes"
    has_binding: bool = True


ACTIONS: tuple[Action, ...] = (
    Action("create", "n", "n", "new", "sbx create [NAME] --memory MIB", "Makes a sandbox; on AWS it costs money.", 4),
    Action(
        "toggle_pause",
        "p",
        "p",
        "pause",
        "sbx stop NAME / sbx start NAME",
        consequence="Suspends or resumes; memory and disk stay.",
        rank=5,
    ),
    Action(
        "remove",
        "d",
        "d",
        "remove",
        "sbx rm NAME",
        consequence="Ends it for good, memory and disk too. Asks first.",
        rank=6,
    ),
    Action("run", "e", "e", "run", "sbx exec NAME -- sh -lc LINE", "Runs one shell line in the sandbox.", 3),
    Action("record", "i", "i", "record", "sbx inspect NAME", "Shows the control plane's record as JSON.", 8),
    Action("explain", "o", "o", "explain", "", "Shows the last error with what to do about it.", 9),
    Action("refresh", "r", "r", "refresh", "sbx ls", "Asks the control plane now.", 10),
    Action("mark", "space", "space", "mark", "", "Marks it; actions then act on all marked ones.", 0),
    Action("mark_all", "asterisk", "*", "mark all shown", "", "Marks what the filter shows, or unmarks it.", 0),
    Action("filter", "slash", "/", "filter", "sbx ls --filter EXPR", "state:run age<1h !image:py text", 2, "View"),
    Action("sort", "s", "s", "sort", "sbx ls --sort KEYS", "Next order.", 11, "View"),
    Action("next_pane", "tab", "tab", "pane", "", "The next pane.", 7, "View"),
    Action("previous_pane", "shift+tab", "shift+tab", "previous pane", "", "The pane before.", 0, "View"),
    Action("tab_1", "1", "1", "overview", "", "What is known of the sandbox.", 0, "View"),
    Action("tab_2", "2", "2", "run", "", "Commands you ran in it.", 0, "View"),
    Action("zoom", "z", "z", "zoom", "", "The focused pane alone, or both.", 12, "View"),
    Action("theme", "T", "T", "theme", "", "Dark, light, high contrast, mono.", 0, "View"),
    Action("back", "escape", "esc", "back", "", "Up one level, always.", 0, "View"),
    Action("palette", "colon", ":", "actions", "", "Every action by name.", 1, "Program"),
    Action("help", "question_mark", "?", "help", "", "This page.", 1, "Program"),
    Action("quit", "q", "q", "quit", "", "Leaves; sandboxes go on.", 13, "Program"),
)
# What still acts while a line is typed; all other keys belong to the line.
WHILE_TYPING = frozenset({"back", "next_pane", "previous_pane"})
BY_ID = {action.id: action for action in ACTIONS}


def bindings() -> list[Binding | tuple[str, str] | tuple[str, str, str]]:
    """Key bindings for the main screen; each keeps its action's id, so that keymaps can name it.

    They have priority: a key then acts before the next one is looked at, so that what is typed fast after `e` or `/`
    goes to the line it opens and is never taken for actions. The screen turns them off while a line has the focus.
    """
    return [
        Binding(
            action.keys, f"do('{action.id}')", action.label, id=action.id, key_display=action.shown_key, priority=True
        )
        for action in ACTIONS
    ]


def footer_actions(width: int, ids: Sequence[str] | None = None) -> list[Action]:
    """The actions a footer of `width` columns has room for, most useful first, in reading order."""
    wanted = [BY_ID[one] for one in ids] if ids else sorted((a for a in ACTIONS if a.rank), key=lambda a: a.rank)
    shown: list[Action] = []
    used = 1
    # Leaving is always shown, however narrow the screen is.
    leave = [] if ids else [BY_ID["quit"]]
    room = width - sum(_width(action) for action in leave)
    for action in wanted:
        if action in leave:
            continue
        used += _width(action)
        if used > room:
            break
        shown.append(action)
    return shown + leave


def help_text() -> str:
    """The help page: every action by group, with its key and the CLI line that does the same."""
    lines: list[str] = []
    for group in dict.fromkeys(action.group for action in ACTIONS):
        lines.append(group)
        for action in (one for one in ACTIONS if one.group == group):
            lines.append(f"  {action.shown_key:<9} {action.label:<14} {action.consequence}")
            if action.cli:
                lines.append(f"  {'':<9} {'':<14} {action.cli}")
        lines.append("")
    lines += [
        "In the list",
        "  j k g G PgUp PgDn move · enter opens the detail · click a head to sort",
        "On the run line",
        "  enter runs it · ctrl+c stops it · up and down: earlier lines",
        "In the output",
        "  j k g PgUp PgDn scroll and pause · G follows again · h l go sideways",
        "  y copies what is on screen",
        "With the mouse",
        "  everything works; hold shift to select text as your terminal does",
    ]
    return "\n".join(lines)


def _width(action: Action) -> int:
    return len(action.shown_key) + len(action.label) + 3
