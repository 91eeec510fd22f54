"""A keeper that does not get its sandbox started in time leaves nothing running, and says what was wrong."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from sbxtui.core.errors import RuntimeUnavailable
from sbxtui.localcloud import keeper_client
from sbxtui.localcloud.keeper_client import start_keeper
from sbxtui.localcloud.keeper_kill import kill_keeper
from sbxtui.localcloud.keeper_processes import descendants, read_process
from sbxtui.localcloud.spec import read_exit
from tests.support.sandboxes import Place, processes_naming

LIMIT_S = 60


@pytest.mark.parametrize("timeout_s", [0.001, 0.15])
async def test_a_start_that_takes_too_long_is_undone(
    place: Place, monkeypatch: pytest.MonkeyPatch, timeout_s: float
) -> None:
    spec = place.spec(runtime="process")
    # Prepared as in life, so that the time is the keeper's own.
    await asyncio.to_thread(keeper_client.prepare, spec)
    monkeypatch.setattr(keeper_client, "START_TIMEOUT_S", timeout_s)
    async with asyncio.timeout(LIMIT_S):
        try:
            keeper = await start_keeper(spec)
        except RuntimeUnavailable as exc:
            assert "said nothing for" in exc.message
        else:
            await keeper.terminate(0)
    assert processes_naming(str(spec.sandbox_dir)) == []
    assert not spec.keeper_socket.exists()
    assert not (spec.sandbox_dir / "work").exists()


def _is_alive(pid: int) -> bool:
    found = read_process(pid)
    return found is not None and found.is_alive


async def test_a_keeper_that_hangs_is_killed_with_its_sandbox_and_no_other(place: Place) -> None:
    hung, other = place.spec("hung", runtime="process"), place.spec("other", runtime="process")
    async with asyncio.timeout(LIMIT_S):
        pid = (await (await start_keeper(hung)).status()).pid
        second = await start_keeper(other)
        try:
            below = descendants(pid)
            os.kill(pid, signal.SIGSTOP)
            await asyncio.to_thread(kill_keeper, hung)
            assert not _is_alive(pid)
            while any(map(_is_alive, below)):
                await asyncio.sleep(0.01)
            known = read_exit(hung.sandbox_dir)
            assert known is not None
            assert known.reason == "keeper-died"
            assert not hung.keeper_socket.exists()
            assert (await second.status()).exit is None
        finally:
            await second.terminate(0)


async def test_a_folder_that_cannot_be_written_is_said_and_not_waited_for(place: Place) -> None:
    spec = place.spec(runtime="process")
    spec.sandbox_dir.parent.mkdir(parents=True)
    spec.sandbox_dir.write_text("in the way")
    with pytest.raises(RuntimeUnavailable, match="could not be started"):
        await start_keeper(spec)
    spec.sandbox_dir.unlink()
