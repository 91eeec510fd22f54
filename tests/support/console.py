"""Sessions as pages show them: what is typed, and what is answered."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What differs from run to run is written as an ellipsis; on a line of its own it stands for any number of lines.
_ANY = "…"


def steps_of(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a page's sessions, each with what it answers."""
    for block in _BLOCK.findall(text):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            yield command.partition("  #")[0], output.rstrip("\n") + "\n" if output.strip() else ""


def fits(expected: str, actual: str) -> bool:
    """Whether an answer is what a page says it is."""
    lines = (
        "(?:.*\n)*" if line == _ANY else ".*".join(re.escape(part) for part in line.split(_ANY)) + " *\n"
        for line in expected.splitlines()
    )
    return re.fullmatch("".join(lines), actual) is not None
