"""The help page, made from the registry of actions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from sbxtui.tui.actions import EVERYWHERE, FILTER, LIST, ROWS, SANDBOXES, Action, shown_key
from sbxtui.tui.keymap import Keymap

_TITLES = {
    SANDBOXES: "Sandboxes: the marked ones, else the selected one",
    LIST: "In the list",
    ROWS: "In any other list",
    FILTER: "While the filter is typed",
    EVERYWHERE: "Everywhere",
}


def help_text(keymap: Keymap, here: Sequence[Action]) -> str:
    """Every action by where it works, with its keys and the command line that does the same; what works here first."""
    scopes = list(dict.fromkeys([*(one.scope for one in here), *(one.scope for one in keymap.actions)]))
    lines: list[str] = []
    for scope in scopes:
        lines.append(_TITLES.get(scope, f"In the {scope}"))
        lines += _lines(one for one in keymap.actions if one.scope == scope)
        lines.append("")
    lines += [
        "The filter",
        "  state:run age<1h cost>.1 !image:py label:team=web text · terms are joined by and",
        "With the mouse",
        "  everything works; drag to select text, y or ctrl+c copies it; hold shift to select as your terminal does",
        "Your own keys, in config.toml",
        "  [keys]",
        '  remove = "x"        any of these:',
        *wrap(
            " ".join(one.id for one in keymap.actions if not one.is_native),
            90,
            initial_indent="  ",
            subsequent_indent="  ",
        ),
    ]
    return "\n".join(lines)


def _lines(actions: Iterable[Action]) -> list[str]:
    lines = []
    for action in actions:
        keys = " ".join(shown_key(key) for key in action.keys.split(","))
        lines.append(f"  {keys:<15}  {action.label:<14}  {action.consequence}".rstrip())
        if action.cli:
            lines.append(f"  {'':<15}  {'':<14}  $ {action.cli}")
    return lines
