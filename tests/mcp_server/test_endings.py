"""The end of a command is told once, by whoever learns of it first."""

from __future__ import annotations

import asyncio

import pytest

from sbxtui.mcp_server.endings import Endings

JOB, OTHER = "j-1", "j-2"


@pytest.mark.parametrize("is_told_first", [True, False])
async def test_an_end_is_heard_whether_it_was_told_before_or_after_it_was_known_here(is_told_first: bool) -> None:
    endings = Endings()
    endings.expect(JOB)
    endings.told(OTHER)
    if is_told_first:
        endings.told(JOB)
    waiting = asyncio.ensure_future(endings.wait(JOB))
    await asyncio.sleep(0)
    assert is_told_first or not waiting.done()
    endings.told(JOB)
    async with asyncio.timeout(10):
        await waiting
    endings.forget(JOB)
    endings.told(JOB)
