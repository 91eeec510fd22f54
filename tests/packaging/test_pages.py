"""Pages for people: their links lead somewhere, and the README's commands are commands of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.support import ROOT

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".", "docs", "screenshots", "infra/sbxinfra", "examples", "guest")
    for path in (ROOT / folder).glob("*.md")
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")
_TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_to_one(page: str) -> None:
    folder = (ROOT / page).parent
    targets = [match[1] for match in _LINK.finditer((ROOT / page).read_text()) if "://" not in match[1]]
    assert [target for target in targets if not (folder / target).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_on_the_page_exists(page: str) -> None:
    known = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    used = set(re.findall(r"^make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE))
    assert used
    assert used <= known


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(Path(ROOT / "README.md").read_text().splitlines()) <= 130
