"""What is typed at the person's terminal, and that leaving is always seen."""

from __future__ import annotations

import asyncio
import os
import pty
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager, suppress

import pytest

from sbxtui.cli.keyboard import Keyboard
from tests.support.on_terminal import sbx_on_terminal
from tests.support.sbx import Sbx


@contextmanager
def raw_terminal() -> Iterator[tuple[int, int]]:
    """A terminal that passes on every key: where a person types, and where a program reads."""
    person, program = pty.openpty()
    tty.setraw(program)
    try:
        yield person, program
    finally:
        os.close(person)
        os.close(program)


async def typed_until(typed: AsyncIterator[bytes], wanted: bytes) -> bytes:
    """Pieces up to and with the one that completes `wanted`."""
    seen = b""
    while not seen.endswith(wanted):
        seen += await anext(typed)
    return seen


@pytest.mark.parametrize("leaving", [b"\x1d", b"\x1b[93;5u", b"\x1b[27;5;93~"], ids=["byte", "kitty", "xterm"])
async def test_leaving_is_seen_while_nobody_takes_what_was_typed(leaving: bytes) -> None:
    with raw_terminal() as (person, program):
        keyboard = Keyboard(program)
        async with asyncio.timeout(30), aclosing(keyboard.typed()) as typed:
            os.write(person, b"taken")
            assert await anext(typed) == b"taken"
            # As a command whose input is full: the next piece is not asked for.
            os.write(person, b"waits" + leaving)
            await keyboard.has_left.wait()


async def test_what_was_typed_before_leaving_is_passed_on_first() -> None:
    with raw_terminal() as (person, program):
        keyboard = Keyboard(program)
        async with asyncio.timeout(30), aclosing(keyboard.typed()) as typed:
            os.write(person, b"last words\x1dnot these")
            assert b"".join([piece async for piece in typed]) == b"last words"
        assert keyboard.has_left.is_set() and not keyboard.has_hung_up


@pytest.mark.parametrize("leaving", [b"\x1b[93;5u", b"\x1b[27;5;93~"], ids=["kitty", "xterm"])
async def test_a_leaving_key_that_comes_in_pieces_is_one(leaving: bytes) -> None:
    for cut in range(1, len(leaving)):
        with raw_terminal() as (person, program):
            keyboard = Keyboard(program)
            async with asyncio.timeout(30), aclosing(keyboard.typed()) as typed:
                os.write(person, b"before" + leaving[:cut])
                assert await anext(typed) == b"before"
                os.write(person, leaving[cut:])
                assert [piece async for piece in typed] == []
            assert keyboard.has_left.is_set()


@pytest.mark.parametrize("keys", [b"\x1b", b"\x1b[", b"\x1b[A", b"\x1b[93;2u", b"\x1b[27;5;9"])
async def test_a_key_that_only_begins_like_leaving_is_passed_on(keys: bytes) -> None:
    with raw_terminal() as (person, program):
        keyboard = Keyboard(program)
        async with asyncio.timeout(30), aclosing(keyboard.typed()) as typed:
            os.write(person, keys)
            assert await typed_until(typed, keys) == keys
        assert not keyboard.has_left.is_set()


async def test_what_nobody_takes_is_bounded_counted_and_leaving_still_seen() -> None:
    with raw_terminal() as (person, program):
        os.set_blocking(person, False)
        keyboard = Keyboard(program, max_waiting_bytes=8_192)
        async with asyncio.timeout(30), aclosing(keyboard.typed()) as typed:
            os.write(person, b"first")
            assert await anext(typed) == b"first"
            sent = b"x" * 32_768
            unsent = sent + b"\x1d"
            while unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[os.write(person, unsent) :]
                await asyncio.sleep(0)
            await keyboard.has_left.wait()
            rest = b"".join([piece async for piece in typed])
        assert (len(rest), keyboard.dropped_bytes) == (8_192, len(sent) - 8_192)


async def test_a_terminal_that_hangs_up_ends_what_is_typed() -> None:
    person, program = pty.openpty()
    tty.setraw(program)
    keyboard = Keyboard(program)
    async with asyncio.timeout(30), aclosing(keyboard.typed()) as typed:
        os.write(person, b"then gone")
        assert await anext(typed) == b"then gone"
        os.close(person)
        assert [piece async for piece in typed] == []
    assert keyboard.has_hung_up and keyboard.has_left.is_set()
    os.close(program)


def test_who_leaves_a_command_that_reads_nothing_is_let_go(sbx: Sbx, app: str) -> None:
    command = ("sh", "-c", "stty raw -echo; echo up; exec sleep 1002")
    with sbx_on_terminal(sbx, "exec", "-it", app, "--", *command) as terminal:
        terminal.see(b"up")
        terminal.until_raw()
        # More than its terminal holds.
        for _ in range(24):
            terminal.type(b"x" * 1_024)
        terminal.type(b"\x1d")
        assert terminal.wait() == 0
        assert not terminal.is_raw
    job = next(one["id"] for one in sbx.ok("jobs", app, "--json").json if "1002" in one["command"])
    sbx.ok("kill", "-s", "KILL", job)
