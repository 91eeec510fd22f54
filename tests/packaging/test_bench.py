"""Benchmarks are found, and their tables line up."""

from __future__ import annotations

import importlib
import inspect
import sys

import pytest

from bench.__main__ import benchmark_names, main, table
from bench.support import interleaved, milliseconds, ratio_row, run_within


@pytest.mark.parametrize("name", benchmark_names())
def test_every_benchmark_has_a_heading_and_a_run(name: str) -> None:
    module = importlib.import_module(f"bench.{name}")
    assert (module.__doc__ or "").strip()
    assert not inspect.signature(module.run).parameters


def test_an_unknown_benchmark_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["no-such-benchmark"])
    assert "no benchmark is called no-such-benchmark" in capsys.readouterr().err


def test_a_table_lines_up() -> None:
    lines = table([("a long measure", "1 ms", "2 ms x, 0.50 ×"), ("b", "100 ms", "-")]).splitlines()
    assert len({len(line) for line in lines}) == 1


def test_a_ratio_says_both_sides() -> None:
    assert ratio_row("x", 0.030, 0.010, "y") == ("x", "30 ms", "10 ms y, 3.00 ×")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.00083, "0.83 ms"), (0.0412, "41 ms"), (1.239, "1.24 s"), (0.9999, "1000 ms")]
)
def test_durations_read_as_people_compare_them(seconds: float, words: str) -> None:
    assert milliseconds(seconds) == words


def test_sides_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []
    first, second = iter([100.0, 1.0, 3.0, 2.0]), iter([0.0, 5.0, 5.0, 5.0])

    def left() -> float:
        calls.append("left")
        return next(first)

    def right() -> float:
        calls.append("right")
        return next(second)

    assert interleaved(left, right, rounds=3) == [2.0, 5.0]
    assert calls == ["left", "right"] * 4


def test_a_program_that_does_not_end_is_killed() -> None:
    with pytest.raises(RuntimeError, match="ended with -9"):
        run_within(0.1, [sys.executable, "-c", "import time; time.sleep(600)"])
