"""The pictures show the dashboard as it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from screenshots.words import Box, words_of
from tests.architecture.source import ROOT

DEADLINE_S = 280

_PICTURE = """<svg><text class="terminal-r1" x="12" y="20" textLength="3">web&#160;&#160;12s</text>
<text class="terminal-r2" x="0" y="20" textLength="1">│</text><text class="terminal-r1" x="0" y="44">{0}</text></svg>"""


def test_ids_ages_and_places_are_no_words_of_a_picture() -> None:
    one = _PICTURE.format("id&#160;microvm-0a1b2c3d-77aa&#160;5.9s&#160;/tmp/sbx-bench-x1y2/project")
    other = _PICTURE.format("id&#160;microvm-ffff0000-12ab&#160;11s&#160;/var/tmp/sbx-bench-zz/project")
    assert words_of(one) == words_of(other) == ["web #", "id microvm-# # /PLACE/project"]
    assert words_of(_PICTURE.format("seen&#160;12s&#160;ago")) == words_of(_PICTURE.format("seen&#160;3m&#160;ago"))
    assert words_of(_PICTURE.format("another word")) != words_of(_PICTURE.format("a word"))


def test_of_a_dialog_only_its_own_words_count() -> None:
    assert words_of(_PICTURE.format("under&#160;it"), Box(0, 0, 2, 1)) == ["web #"]


@pytest.mark.long
@pytest.mark.timeout(DEADLINE_S + 20)
@pytest.mark.skipif(sys.platform != "linux", reason="the local cloud needs Linux")
def test_no_picture_is_stale() -> None:
    command = [sys.executable, "-m", "screenshots", "--check"]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
