"""Sizes and times on a line are what they say, or refused."""

from __future__ import annotations

import pytest

from sbxtui.cli import parser
from sbxtui.core.errors import UsageError


@pytest.mark.parametrize(
    ("size", "memory_mib"), [("512", 512), ("512M", 512), ("512MiB", 512), ("2g", 2048), ("2GiB", 2048)]
)
def test_memory_is_taken_as_people_write_it(size: str, memory_mib: int) -> None:
    assert parser.parse(["create", "-m", size]).memory == memory_mib
    assert parser.parse(["run", "-m", size, "--", "true"]).memory == memory_mib


@pytest.mark.parametrize("size", ["0", "0.5", "-1", "", "big", "512K", "0g", "٥١٢"])
def test_another_memory_size_tells_how_it_is_written(size: str) -> None:
    with pytest.raises(UsageError, match="in MiB, like 512"):
        parser.parse(["create", f"-m{size}" if size else "-m="])


@pytest.mark.parametrize("flag", ["--cpus", "--idle", "--max-duration"])
def test_nothing_is_not_taken_for_the_default(flag: str) -> None:
    with pytest.raises(UsageError, match="`0` is"):
        parser.parse(["create", flag, "0"])
