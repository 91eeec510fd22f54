"""The terminal itself, where a kernel has less than ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from sbxguest.joblog import JobLog
from sbxguest.terminal import Size, Terminal, open_pair

RING = 1024 * 1024


@pytest.fixture
def pair() -> Iterator[tuple[Terminal, int]]:
    """A terminal and the program's side of it."""
    fds = open_pair(Size(80, 24), uid=None)
    terminal = Terminal(fds, is_running=False)
    yield terminal, fds["tty"]
    terminal.close()


def _without_splice_from_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.splice

    def splice(source: int, target: int, count: int, **more: int) -> int:
        if os.isatty(source):
            raise OSError(errno.EINVAL, "not from a terminal")
        return real(source, target, count, **more)

    monkeypatch.setattr(os, "splice", splice)


def _read_all(terminal: Terminal, log: JobLog) -> None:
    try:
        while terminal.take(log, RING):
            pass
    except BlockingIOError:
        return


@pytest.mark.parametrize("has_splice", [True, False])
def test_output_reaches_the_log_whole_with_and_without_splice(
    pair: tuple[Terminal, int], monkeypatch: pytest.MonkeyPatch, has_splice: bool
) -> None:
    terminal, side = pair
    if not has_splice:
        _without_splice_from_terminals(monkeypatch)
    log = JobLog.create("t", ring_bytes=RING, meta=b"{}")
    expected = b""
    for n in range(200):
        line = b"%d\n" % n * 50
        os.write(side, line)
        expected += line.replace(b"\n", b"\r\n")
        if n % 3 == 0:
            _read_all(terminal, log)
    os.close(side)
    while terminal.take(log, RING):
        pass
    pieces: list[bytes] = []
    log.read(0, RING, pieces)
    assert b"".join(pieces[1::2]) == expected
    log.close()


def test_an_end_is_typed_twice_behind_half_a_line_and_never_where_it_is_switched_off(
    pair: tuple[Terminal, int],
) -> None:
    terminal, side = pair
    assert terminal.end_of_input() == b"\x04"
    terminal.write(memoryview(b"half"))
    assert terminal.end_of_input() == b"\x04\x04"
    terminal.write(memoryview(b"\n"))
    assert terminal.end_of_input() == b"\x04"
    os.close(side)


def test_a_size_can_be_changed_and_asked_for_until_it_is_closed(pair: tuple[Terminal, int]) -> None:
    terminal, side = pair
    assert os.get_terminal_size(side) == (80, 24)
    terminal.resize(Size(120, 40))
    assert (terminal.size, os.get_terminal_size(side)) == (Size(120, 40), (120, 40))
    terminal.close()
    terminal.resize(Size(1, 1))
    assert terminal.size is None
    os.close(side)
