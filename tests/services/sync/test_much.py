"""Much of everything, with a real guest: a large file, a slow line, very many entries; and a line that went silent."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sbxtui.core.errors import GuestUnreachable
from sbxtui.guest.client import GuestClient
from sbxtui.guest.http1 import Patience
from sbxtui.guest.treebodies import Step
from tests.services.sync.alone import memory_kib
from tests.services.sync.processes import Started, started
from tests.support.guest_process import running_guest
from tests.support.relay import running_relay
from tests.support.tree_side import put

_KIB_ALLOWED = 64 * 1024
_LARGE_BYTES = 2 * 10**9
_SLOW_BYTES, _SLOW_BYTES_PER_S = 60 * 10**6, 10**6
_ENTRIES, _BYTES_PER_ENTRY = 500_000, 600


async def turn(alone: Started) -> tuple[float, int, int, int, str]:
    """What one comparison came to: seconds to the first figure, changes, memory after and at most, the warning."""
    alone.tell("")
    first_s, pushed, after, most, *warning = (await asyncio.to_thread(alone.hear)).split(" ", 4)
    return float(first_s), int(pushed), int(after), int(most), "".join(warning)


async def test_a_line_that_takes_nothing_any_more_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbxtui.guest.tree._PATIENCE", Patience(answer_s=1.0, send_s=1.0))
    async with (
        running_guest(tmp_path) as guest,
        running_relay(guest.port) as relay,
        GuestClient(relay.url, None) as client,
    ):
        tree = client.tree("")
        await tree.hello()
        relay.is_deaf = True
        op, content = put(b"f", b"x" * 60_000)
        async with asyncio.timeout(60):
            with pytest.raises(GuestUnreachable, match=r"in time|broke"):
                await tree.batch("one", [Step(op, content)] * 100)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_file_larger_than_memory_may_hold_costs_neither_side_memory(tmp_path: Path) -> None:
    here = tmp_path / "h" / "here"
    here.mkdir(parents=True)
    async with running_guest(tmp_path) as guest:
        with started("alone", tmp_path, guest.url) as alone:
            (here / "first").write_text("x")
            *_, before, _ = await turn(alone)
            guest_before = memory_kib(str(guest.server_pid), "VmHWM")
            with (here / "large").open("wb") as file:
                file.truncate(_LARGE_BYTES)
            _, pushed, _, most, _ = await turn(alone)
            assert pushed == 1 and (guest.workdir / "large").stat().st_size == _LARGE_BYTES
            assert most - before < _KIB_ALLOWED
            assert memory_kib(str(guest.server_pid), "VmHWM") - guest_before < _KIB_ALLOWED


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_slow_line_takes_longer_than_any_patience_and_nothing_times_out(tmp_path: Path) -> None:
    here = tmp_path / "h" / "here"
    here.mkdir(parents=True)
    (here / "large").write_bytes(os.urandom(_SLOW_BYTES))
    async with running_guest(tmp_path) as guest, running_relay(guest.port) as relay:
        relay.bytes_per_s = _SLOW_BYTES_PER_S
        with started("alone", tmp_path, relay.url) as alone:
            _, pushed, *_ = await turn(alone)
        assert pushed == 1 and (guest.workdir / "large").read_bytes() == (here / "large").read_bytes()


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_half_a_million_entries_are_told_of_soon_and_cost_little_each(tmp_path: Path) -> None:
    here = tmp_path / "h" / "here"
    here.mkdir(parents=True)
    async with running_guest(tmp_path) as guest:
        with started("alone", tmp_path, guest.url) as alone:
            *_, before, _, _ = await turn(alone)
            for number in range(_ENTRIES // 100):
                folder = here / ("data" if number % 5 else "src") / f"d{number}"
                folder.mkdir(parents=True)
                for name in range(99):
                    (folder / f"f{name}").touch()
            first_s, pushed, after, _, warning = await turn(alone)
            *_, looked_again, _, _ = await turn(alone)
        assert pushed > _ENTRIES
        assert first_s < 2.0
        assert (max(after, looked_again) - before) * 1024 / pushed < _BYTES_PER_ENTRY
        assert "the most in data/" in warning
