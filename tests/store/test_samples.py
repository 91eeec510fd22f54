"""Samples of the last hour: what was kept of late is found wherever the ring has turned over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sbxtui.core.usage import Usage
from sbxtui.store.samples import EVERY_S, SLOTS, Samples

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("turned", [0, 1, 30, 59, 60, 61, SLOTS - 1])
def test_what_was_kept_of_late_is_found_wherever_the_ring_turned_over(tmp_path: Path, turned: int) -> None:
    samples = Samples(tmp_path)
    # The slot of `now` is `turned` slots behind the ring's beginning.
    now = datetime.fromtimestamp(int(AT.timestamp() / EVERY_S / SLOTS) * SLOTS * EVERY_S + turned * EVERY_S + 1, UTC)
    for number in range(60):
        samples.add("local", "one", Usage(now - timedelta(seconds=EVERY_S * number), cpu_percent=float(number)))
    found = samples.cpu_of_late("local", "one", now, 300.0)
    assert [cpu for _, cpu in found] == [float(number) for number in reversed(range(60))]
    assert samples.cpu_of_late("local", "none", now, 300.0) == []


def test_what_is_not_known_is_none_and_a_damaged_file_is_none_at_all(tmp_path: Path) -> None:
    samples = Samples(tmp_path)
    samples.add("local", "one", Usage(AT))
    assert samples.cpu_of_late("local", "one", AT, 300.0) == [(AT.timestamp(), None)]
    (tmp_path / "local" / "one.ring").write_bytes(b"sbxring1" + b"\xff" * 1000)
    assert samples.cpu_of_late("local", "one", AT, 300.0) == []
    (tmp_path / "local" / "one.ring").write_bytes(b"sb")
    assert samples.cpu_of_late("local", "one", AT, 300.0) == []
