"""Names of sandboxes: what is valid, and how one is made up."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from sbxtui.core.errors import UsageError
from sbxtui.core.text import harmless_line

MAX_NAME_LENGTH = 63
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# A name is taken before an id: one that looks like the id of another sandbox would be acted on in its place.
_ID_BEGINNING = "microvm-"

# A sandbox called like a verb would make `sbx VERB NAME` lines unreadable.
_VERBS = """
    adopt attach budget completion context cost cp create doctor events exec fork forward fs help image infra inspect
    jobs keep-awake kill label local logs ls mcp metrics network output policy ports prune ps rename rm run runner
    script secret shell snapshot start stop sync top trust tui version wait
"""
VERB_WORDS = frozenset(_VERBS.split())

_ADJECTIVES = """
    able amber apt bold brave brisk calm clear cool crisp deft dry fair fast fine firm fond free fresh glad grand keen
    kind late lean light live loud lucid main mild neat new nice odd open plain prime proud pure quick quiet rapid rare
    ready ripe sharp shy slim smart soft solid spare stark still sunny sure swift tame tidy true vast vivid warm wide
    wise witty young
"""
_NOUNS = """
    acorn alder amp anvil arch ash atlas badge basil beam birch bolt brook cedar cliff clover comet coral crane creek
    crow delta dune ember falcon fern finch fjord flint forge fox gale glade grove gull harbor hawk hazel heron ibis
    iris ivy jay juniper kelp kite lake larch lark lemur lily linden lotus lynx maple marsh mesa mica mint moss oak onyx
    opal orca otter owl peak pine plum pond quail quartz raven reed ridge river robin sage seal shore slate sorrel
    spruce stork swan thistle tide topaz vale willow wren yarrow
"""


def check_name(name: str) -> str:
    """Return `name` if a sandbox may have it.

    Raises:
        UsageError: It breaks `[a-z0-9][a-z0-9-]{0,62}`, is a verb of sbx, or begins like an id.
    """
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= MAX_NAME_LENGTH else name[:20] + "…"
        raise UsageError(
            f"`{shown}` cannot name a sandbox",
            hint="use 1 to 63 of a-z, 0-9 and -, starting with a letter or digit",
        )
    if name in VERB_WORDS:
        raise UsageError(f"`{name}` cannot name a sandbox: it is a verb of sbx", hint=f"try `{name}-1`")
    if name.startswith(_ID_BEGINNING):
        raise UsageError(
            f"`{name}` cannot name a sandbox: `{_ID_BEGINNING}` is how ids begin", hint="let the name begin otherwise"
        )
    return name


def check_labels(labels: Mapping[str, str]) -> None:
    """Refuse labels that no line can show and no filter can name; an empty value takes a label away, whatever it is.

    Raises:
        UsageError: One has a line break, an escape or another character that is not printed.
    """
    for key, value in labels.items():
        if value and not (key + value).isprintable():
            shown = harmless_line(f"{key}={value}", limit=60)
            raise UsageError(
                f"`{shown}` is no label: it has characters that cannot be shown", hint="use one plain line"
            )


def generate_name(taken: Collection[str], choose: Callable[[Sequence[str]], str]) -> str:
    """Make up a name nobody has, like `calm-otter`; after some tries, with a number behind it.

    Args:
        taken: Names in use.
        choose: Picks one of a sequence, as `random.choice` does.
    """
    for _ in range(20):
        name = f"{choose(_ADJECTIVES.split())}-{choose(_NOUNS.split())}"
        if name not in taken:
            return name
    stem = f"{choose(_ADJECTIVES.split())}-{choose(_NOUNS.split())}"
    number = 2
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"
