"""What a sandbox is shown of its use is never half of one text and half of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbxtui.localcloud.shown import ShownUse


@pytest.mark.parametrize("total_bytes", [512 << 20, 8 << 30, 1 << 40], ids=["512 MiB", "8 GiB", "1 TiB"])
def test_every_line_is_whole_whatever_the_use(tmp_path: Path, total_bytes: int) -> None:
    use = ShownUse(tmp_path / "shown", total_bytes)
    use.make()
    for used_bytes in (total_bytes, 3 << 20, total_bytes // 2):
        use.show(memory_used=used_bytes, disk_used=used_bytes)
        assert int((use.folder / "disk_used").read_text()) == used_bytes
        rows = [line.split() for line in (use.folder / "meminfo").read_text().splitlines()]
        assert all(len(row) == 3 and row[0].endswith(":") and row[1].isdecimal() and row[2] == "kB" for row in rows)
        told = {row[0]: int(row[1]) for row in rows}
        assert told["MemTotal:"] == total_bytes >> 10
        assert told["MemFree:"] == (total_bytes - used_bytes) >> 10
