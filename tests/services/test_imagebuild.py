"""What an image is made from, looked at before anything is begun."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from sbxtui.core.errors import UsageError
from sbxtui.services.imagebuild import packed


def test_what_would_be_read_for_ever_or_cannot_be_named_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for endless in (Path("/dev/zero"), tmp_path / "pipe"):
        with pytest.raises(UsageError, match="no folder and no zip"):
            packed(endless)
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        packed(tmp_path / ("x" * 300))
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM sbx-base\n")
    (folder / "link").symlink_to(os.fsdecode(b"to-\xff"))
    with zipfile.ZipFile(io.BytesIO(packed(folder))) as made:
        assert made.read("link") == b"to-\xff"
    (folder / os.fsdecode(b"\xff")).touch()
    with pytest.raises(UsageError, match="not UTF-8"):
        packed(folder)
