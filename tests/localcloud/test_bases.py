"""Roots of bases: what a person has, a folder or a tar, becomes one, whoever that person is."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from sbxtui.localcloud.bases.root import BadRoot, make_root
from tests.support.small_root import make_small_root

MARKER = "of-another-system"


def test_a_folder_and_a_tar_become_roots_and_links_in_them_lead_nowhere(tmp_path: Path) -> None:
    root = make_small_root(tmp_path / "root", MARKER)
    (tmp_path / "outside").mkdir()
    (root / "var").symlink_to(tmp_path / "outside")
    (root / "etc" / "passwd").write_text("root:x:0:0:theirs:/:/bin/sh\nuser-of-theirs:x:70000:70000::/:/bin/sh\n")
    packed = tmp_path / "root.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
        archive.add(root, ".")
    for source in (root, packed):
        made = tmp_path / f"made-{source.name}"
        make_root(source, made)
        assert (made / "usr/share/marker").read_text() == f"{MARKER}\n"
        users = (made / "etc/passwd").read_text()
        assert ("user-of-theirs" in users, "theirs:/:" in users) == (True, False)
        assert (made.stat().st_mode & 0o777, (made / "var/tmp").readlink()) == (0o755, Path("/tmp"))
        assert subprocess.run([made / "bin/cat", made / "etc/hosts"], capture_output=True, check=True).stdout == b""
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("what", ["an empty folder", "a damaged tar", "nothing"])
def test_what_is_no_root_is_refused_and_leaves_nothing(tmp_path: Path, what: str) -> None:
    source, target = tmp_path / "source", tmp_path / "made"
    if what == "an empty folder":
        source.mkdir()
    elif what == "a damaged tar":
        source.write_bytes(b"no tar")
    with pytest.raises(BadRoot):
        make_root(source, target)
    assert [path.name for path in tmp_path.iterdir()] in (["source"], [])
