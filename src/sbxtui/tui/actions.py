"""Every action of the dashboard, once. Keys, footer, help, palette and `[keys]` of config.toml are made from this."""

from __future__ import annotations

from enum import IntEnum

from sbxtui.core.values import dataclass

# Where an action works. A widget names its scopes, nearest first; a nearer one takes a key from a farther one.
EVERYWHERE = "everywhere"
SANDBOXES = "sandboxes"
LIST = "list"
FILTER = "filter"
ROWS = "rows"


class Needs(IntEnum):
    """What must be there for an action to mean anything; whoever has more has less, too."""

    NOTHING = 0
    # A sandbox in the context, shown or not.
    SOME = 1
    # One under the cursor.
    ONE = 2


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a person can do; `do_<id>` of the focused widget, a parent of it, its tab or the screen does it.

    Args:
        id: Its stable name, as `[keys]` of config.toml uses it.
        keys: Textual's names of its keys, comma-separated; the first is shown.
        label: One or two words.
        cli: The line that does the same; empty where only the screen changes.
        consequence: What happens, in a sentence.
        rank: Its order in the footer, small first; 0 keeps it out.
        scope: Where it works.
        changes: Whether it changes anything but the screen: gone when read-only.
        is_typed: Whether its key acts while a line is typed.
        is_native: Whether the focused widget handles the key by itself; then it is only told.
        needs: Without it, the key works and says what is missing, and the footer is silent about it.
    """

    id: str
    keys: str
    label: str
    cli: str = ""
    consequence: str = ""
    rank: int = 0
    scope: str = SANDBOXES
    changes: bool = False
    is_typed: bool = False
    is_native: bool = False
    needs: Needs = Needs.NOTHING

    @property
    def shown_key(self) -> str:
        """The first key as a person reads it."""
        return shown_key(self.keys)


_SHOWN = {
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "asterisk": "*",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "exclamation_mark": "!",
    "escape": "esc",
    "plus": "+",
    "minus": "-",
    "full_stop": ".",
    "comma": ",",
}


def shown_key(keys: str) -> str:
    """The first of some keys as a person reads it: `?` for `question_mark,f1`."""
    first = keys.split(",")[0]
    return _SHOWN.get(first, first)


ACTIONS: tuple[Action, ...] = (
    # On sandboxes.
    Action(
        "create",
        "n",
        "new",
        "sbx create [NAME] --memory MIB",
        "Makes a sandbox; on AWS it costs money.",
        4,
        changes=True,
    ),
    Action(
        "run",
        "e",
        "shell",
        "sbx exec NAME -- sh -lc LINE",
        "Runs lines in its shell.",
        3,
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "own_shell",
        "E",
        "own shell",
        "sbx shell NAME",
        "A shell of your own on your whole terminal; ctrl+] comes back.",
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "toggle_pause",
        "p",
        "pause",
        "sbx stop NAME / sbx start NAME",
        "Suspends or resumes; memory and disk stay.",
        5,
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "remove",
        "d",
        "remove",
        "sbx rm NAME",
        "Ends it for good, memory and disk too. Asks first.",
        6,
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "rename",
        "R",
        "rename",
        "sbx rename OLD NEW",
        "Gives it another name; what runs in it goes on.",
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "adopt",
        "a",
        "adopt",
        "sbx adopt ID NAME",
        "Gives a name to a machine that has none here.",
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "fork",
        "f",
        "fork",
        "sbx fork NAME [NEW]",
        "A second one that goes on from where it is now.",
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "snapshot",
        "S",
        "snapshots",
        "sbx snapshot create NAME / sbx snapshot restore SNAPSHOT",
        "Keeps a copy of it, or makes a sandbox from one.",
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "secret",
        "K",
        "secrets",
        "sbx secret set NAME KEY / sbx secret rm NAME KEY",
        "Keys that programs in it use and cannot read: gives one, or takes one back.",
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "keep_awake",
        "w",
        "keep awake",
        "sbx keep-awake NAME --until job",
        "Keeps it from falling asleep while a job runs, or until a time; or lets it.",
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "budget",
        "B",
        "budget",
        "sbx budget NAME USD",
        "Suspends it when it has cost so much; needs this machine.",
        changes=True,
        needs=Needs.ONE,
    ),
    Action(
        "copy",
        "y",
        "copy",
        "",
        "What is selected; else asks: name, id, endpoint, command line, output, error.",
        9,
        needs=Needs.ONE,
    ),
    Action(
        "save_work",
        "D",
        "save",
        "sbx cp -r NAME:/work DIR",
        "Copies its work folder to this machine, as before its end.",
        needs=Needs.ONE,
    ),
    Action("record", "i", "record", "sbx inspect NAME", "Shows the control plane's record as JSON.", needs=Needs.ONE),
    Action("explain", "o", "explain", "", "Why it is as it is, or what failed last, and what to do about it.", 10),
    Action("refresh", "r", "refresh", "sbx ls", "Asks the control plane now."),
    Action("mark", "space", "mark", "", "Marks it; actions then act on all marked ones.", 8, LIST, needs=Needs.ONE),
    Action(
        "mark_all",
        "asterisk",
        "mark all shown",
        "",
        "Marks what the filter shows, or unmarks it.",
        0,
        LIST,
        needs=Needs.ONE,
    ),
    Action(
        "filter",
        "slash",
        "filter",
        "sbx ls --filter EXPR",
        "Like state:run age<1h cost>.1 !image:py text.",
        2,
        needs=Needs.SOME,
    ),
    Action("sort", "s", "sort", "sbx ls --sort KEYS", "The next order.", needs=Needs.SOME),
    # The list.
    Action("list_down", "j,down", "down", scope=LIST),
    Action("list_up", "k,up", "up", scope=LIST),
    Action("list_first", "g,home", "first", scope=LIST),
    Action("list_last", "G,end", "last", scope=LIST),
    Action("list_page_down", "pagedown,ctrl+d", "page down", scope=LIST),
    Action("list_page_up", "pageup,ctrl+u", "page up", scope=LIST),
    Action(
        "list_open",
        "enter",
        "detail",
        "",
        "Goes to the detail; on an empty list it makes a sandbox.",
        7,
        LIST,
        needs=Needs.ONE,
    ),
    # Any other list.
    Action("row_down", "j,down", "down", scope=ROWS),
    Action("row_up", "k,up", "up", scope=ROWS),
    Action("row_first", "g,home", "first", scope=ROWS),
    Action("row_last", "G,end", "last", scope=ROWS),
    Action("row_page_down", "pagedown,ctrl+d", "page down", scope=ROWS),
    Action("row_page_up", "pageup,ctrl+u", "page up", scope=ROWS),
    # While the filter is typed.
    Action("filter_keep", "enter", "keep it", "", "Back to the list; the filter stays.", 1, FILTER, is_native=True),
    # Everywhere.
    Action("back", "escape", "back", "", "Up one level, always.", 90, EVERYWHERE, is_typed=True),
    Action("next_pane", "tab", "next pane", "", "The next pane.", 20, EVERYWHERE, is_typed=True),
    Action("previous_pane", "shift+tab", "previous pane", "", "The pane before.", 0, EVERYWHERE, is_typed=True),
    Action("next_tab", "right_square_bracket", "next tab", "", "The next tab.", 0, EVERYWHERE),
    Action("previous_tab", "left_square_bracket", "previous tab", "", "The tab before.", 0, EVERYWHERE),
    Action("zoom", "z", "zoom", "", "The focused pane alone, or both.", 21, EVERYWHERE),
    Action("pin", "P", "pin tab", "", "Keeps this tab in view below the others, or lets it go.", 22, EVERYWHERE),
    Action("context", "c", "context", "sbx context use NAME", "Looks at another control plane.", 23, EVERYWHERE),
    Action("clients", "M", "agents", "sbx mcp ls", "Agents over MCP: what each does and asks for.", 0, EVERYWHERE),
    Action("notes", "exclamation_mark", "messages", "", "What was said lately, newest first.", 0, EVERYWHERE),
    Action("theme", "T", "theme", "", "Dark, light, high contrast, your terminal's, mono.", 0, EVERYWHERE),
    Action("interrupt", "ctrl+c", "copy or stop", "", "Copies what is selected; never quits.", 0, EVERYWHERE),
    Action("suspend", "ctrl+z", "to the shell", "", "Stops sbx until `fg`.", 0, EVERYWHERE, is_typed=True),
    Action("palette", "colon", "actions", "", "Every action by name.", 1, EVERYWHERE),
    Action("help", "question_mark,f1", "help", "", "This page.", 1, EVERYWHERE),
    Action("quit", "q", "quit", "", "Leaves; sandboxes go on.", 99, EVERYWHERE),
)
