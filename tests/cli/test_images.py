"""Images from a folder to a sandbox and away again, on a base of one's own, as a script does it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from sbxtui.settings import load
from tests.support.sandboxes import point_to_runsc, require_runtime
from tests.support.sbx import Sbx, sbx_home
from tests.support.small_root import make_small_root

MARKER = "of-another-system"
DOCKERFILE = (
    "FROM small:1\nWORKDIR /work/app\nCOPY . .\nRUN cat /usr/share/marker data > /work/made && cat /work/made\n"
)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("isolation", ["bubblewrap", "gvisor"])
def test_an_image_is_built_on_a_base_of_ones_own_used_and_deleted(tmp_path: Path, isolation: str) -> None:
    with sbx_home(tmp_path / "home", SBX_ISOLATION=isolation) as sbx:
        images = load(sbx.environment(), cwd=sbx.home).home.trees_dir / ".images"
        images.mkdir(mode=0o711, parents=True, exist_ok=True)
        point_to_runsc(images)
        require_runtime(isolation, images)
        _build_use_and_delete(sbx, tmp_path, is_gvisor=isolation == "gvisor")


def _build_use_and_delete(sbx: Sbx, tmp_path: Path, *, is_gvisor: bool) -> None:
    root = make_small_root(tmp_path / "root", MARKER)
    assert sbx.ok("local", "base", "add", "small:1", str(root), timeout_s=120).out == "small:1"
    assert [one["name"] for one in sbx.ok("local", "base", "ls", "--json").json] == ["small:1"]
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "data").write_text("data\n")
    built = sbx.ok("image", "build", str(folder), "-m", "512", timeout_s=120)
    assert (built.out.rpartition(":")[2], MARKER in built.err) == ("mine", True), built.err

    box = sbx.ok("create", "box", "--image", "mine", timeout_s=120).out
    said = sbx.ok(
        "exec", box, "--", "sh", "-c", "cat /work/made; touch /usr/x && echo its-own || echo read-only; ls /usr/bin"
    )
    words = said.out.split()
    # A root of its own where overlays can be had, and never with a kernel of its own.
    assert words[:2] == [MARKER, "data"] and words[2] in (["read-only"] if is_gvisor else ["its-own", "read-only"])
    assert "mkdir" in words
    assert not [word for word in words if word.startswith("python")]
    assert sbx("local", "base", "rm", "small:1", "--yes").code == 5
    for line in (("image", "rm", "mine"), ("image", "rm", "mine", "--version", "1.0")):
        stays = sbx("--json", *line, "--yes")
        assert (stays.code, sbx.ok("ps", box, "--json").json["id"] in stays.error["hint"]) == (5, True), stays.err
    sbx.ok("rm", box, "--yes", "--wait", timeout_s=120)

    with zipfile.ZipFile(tmp_path / "broken.zip", "w") as archive:
        archive.writestr("Dockerfile", "FROM small:1\nRUN cat /none\n")
    broken = sbx("image", "build", str(tmp_path / "broken.zip"), "--name", "mine", "--json", timeout_s=120)
    assert (broken.code, broken.error["details"]["version"]) == (1, "2.0"), broken.err
    assert "container image build failed" in broken.error["message"]
    assert "/none" in broken.err
    versions = sbx.ok("image", "inspect", "mine").json["versions"]
    assert [(one["version"], one["state"]) for one in versions] == [("1.0", "SUCCESSFUL"), ("2.0", "FAILED")]
    assert sbx.ok("image", "prune", "--dry-run", "--json").json == sbx.ok("image", "prune", "--yes", "--json").json
    assert sbx.ok("image", "rm", "mine", "--yes").out == "mine"


def test_what_is_no_image_is_told_before_anything_is_begun(sbx: Sbx, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words, code, says in (
        (("image", "build", str(tmp_path / "empty")), 2, "has no Dockerfile"),
        (("image", "build", str(tmp_path / "none.zip")), 2, "no folder and no zip"),
        (("image", "inspect", "none"), 4, "no such image"),
        (("image", "rm", "none", "--yes"), 4, "no such image"),
        (("local", "base", "rm", "none", "--yes"), 4, "no base `none`"),
        (("local", "base", "add", "sbx-base", str(tmp_path)), 5, "already"),
        (("local", "base", "add", "x", str(tmp_path / "empty")), 2, "no /bin/sh"),
        (("local", "base", "add", "x", str(tmp_path / "none")), 4, "no file or folder at"),
    ):
        ended = sbx(*words)
        assert (ended.code, says in ended.err) == (code, True), (words, ended.err)
