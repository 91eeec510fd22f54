"""A sandbox's own `/proc/meminfo` is never half of one text and half of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.localcloud.meminfo import MemInfo


@pytest.mark.parametrize("total_bytes", [512 << 20, 8 << 30, 1 << 40], ids=["512 MiB", "8 GiB", "1 TiB"])
def test_every_line_is_whole_whatever_the_use(tmp_path: Path, total_bytes: int) -> None:
    info = MemInfo(tmp_path / "meminfo", total_bytes)
    info.make()
    for used_bytes in (total_bytes, 3 << 20, total_bytes // 2):
        info.show(used_bytes)
        rows = [line.split() for line in info.path.read_text().splitlines()]
        assert all(len(row) == 3 and row[0].endswith(":") and row[1].isdecimal() and row[2] == "kB" for row in rows)
        told = {row[0]: int(row[1]) for row in rows}
        assert told["MemTotal:"] == total_bytes >> 10
        assert told["MemFree:"] == (total_bytes - used_bytes) >> 10
