"""Lists of what broke other programs: below each case the tests that it does not break this one.

Where there is none, a line says why behind a dash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]


def cases_of(text: str) -> dict[str, list[str]]:
    """The lines that are indented below each case, by the case's first word."""
    found: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            found[line.split()[0]] = below = []
        else:
            below.append(line.strip())
    return found


def unproved(cases: Iterable[list[str]], folder: str) -> list[str]:
    """Tests that are named there and are in no file; a module without a folder is one of `folder`."""
    proofs = [line for lines in cases for line in lines if not line.startswith("- ")]
    return [proof for proof in proofs if not _is_there(proof, folder)]


def _is_there(proof: str, folder: str) -> bool:
    module, _, name = proof.partition(".test_")
    file = _TESTS / (f"{module}.py" if "/" in module else f"{folder}/test_{module}.py")
    return re.search(rf"^(async )?def test_{name}\(", file.read_text(), re.MULTILINE) is not None
