"""A patch of what the sandbox changed is one that git applies, and says nothing that is not so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sbxtui.services.sync.compare import patch_of
from sbxtui.services.sync.review import review
from tests.services.sync.pairs import TwoFolders, two_folders

_FORGED = b"a\n--- a/Makefile\n+++ b/Makefile\n@@ -1 +1 @@\n-all:\n+all: evil\n".replace(b"/", b"_")


async def patch(two: TwoFolders) -> list[str]:
    reviewed = await review(two.pair)
    return [line for change in reviewed.changes for line in await patch_of(two.pair, change)]


async def test_a_name_cannot_forge_lines_of_a_patch(tmp_path: Path) -> None:
    with two_folders(tmp_path) as two:
        await two.cycle.compare()
        Path(os.fsdecode(os.fsencode(two.there) + b"/" + _FORGED)).write_text("hi\n")
        lines = await patch(two)
        assert not any("\n" in line for line in lines)
        assert lines[0].startswith('diff --git "a/a\\n--- a_Makefile\\n')
        assert [line for line in lines if line.startswith("+++ ")] == [lines[3]]


async def test_git_applies_the_patch_of_any_text_name_and_kind(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    odd = "x\n\x0cint a;\ny\x1c\x85\u2028z\rlone\n"
    with two_folders(tmp_path) as two:
        for name in ("odd", "becomes link", 'q"uo\\te', "ümlaut"):
            (two.here / name).write_text(odd)
        (two.here / "becomes file").symlink_to("odd")
        await two.cycle.compare()
        for name in ("odd", 'q"uo\\te', "ümlaut"):
            (two.there / name).write_text(odd.replace("int a", "int b") + "end")
        (two.there / "becomes link").unlink()
        (two.there / "becomes link").symlink_to("odd")
        (two.there / "becomes file").unlink()
        (two.there / "becomes file").write_text("f\n")
        (two.there / "new\tone").write_text("n\n")
        lines = await patch(two)
        text = b"".join(line.encode() + b"\n" for line in lines)
        subprocess.run(["git", "apply", "-"], cwd=two.here, input=text, check=True, timeout=60)
        assert not (await review(two.pair)).changes
