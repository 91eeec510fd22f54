"""What is taken in a thread is given back when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sbxtui.core.errors import StoreError
from sbxtui.store.turns import taken


async def _cancelled(outcome: Exception | None, gives_back: Exception | None = None) -> list[str]:
    """What was given back of a take that is cancelled while its thread is at it."""
    is_taking, may_end = threading.Event(), threading.Event()
    given: list[str] = []

    def take() -> str:
        is_taking.set()
        may_end.wait(30)
        if outcome is not None:
            raise outcome
        return "it"

    def give_back(it: str) -> None:
        given.append(it)
        if gives_back is not None:
            raise gives_back

    taking = asyncio.create_task(taken(take, give_back))
    await asyncio.to_thread(is_taking.wait, 30)
    taking.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    return given


async def test_a_cancel_gives_back_what_the_thread_took_all_the_same() -> None:
    assert await _cancelled(None) == ["it"]


async def test_a_cancel_stays_a_cancel_when_the_store_fails() -> None:
    assert await _cancelled(StoreError("locked")) == []
    assert await _cancelled(None, StoreError("locked")) == ["it"]


async def test_what_is_taken_is_kept_and_errors_are_raised() -> None:
    given: list[int] = []
    assert await taken(lambda: 1, given.append) == 1
    with pytest.raises(ZeroDivisionError):
        await taken(lambda: 1 // 0, given.append)
    assert given == []
