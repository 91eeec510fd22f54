"""Python looks through everything that lives while nobody types, and seldom."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from sbxtui.tui import collecting
from sbxtui.tui.collecting import Collector
from sbxtui.tui.feeding import KEYS


@pytest.fixture
def collector() -> Iterator[Collector]:
    """One that decides, in a process that is given back as it was."""
    before = gc.get_threshold()
    gc.disable()
    one = Collector()
    one.begin()
    # Nothing else looks meanwhile.
    gc.disable()
    yield one
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


def looks_at_all() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_garbage_waits_until_nobody_types(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_WORTH_LOOKS", 3)
    monkeypatch.setattr(collecting, "_DUE_LOOKS", 9)
    monkeypatch.setattr(collector, "_looks", gc.get_stats()[1]["collections"])
    monkeypatch.setattr(KEYS, "_pressed_at", float("-inf"))
    began = looks_at_all()
    collector.tick()
    assert looks_at_all() == began, "there is nothing worth it"
    for _ in range(4):
        gc.collect(1)
    KEYS.pressed()
    collector.tick()
    assert looks_at_all() == began, "a key would wait"
    monkeypatch.setattr(KEYS, "_pressed_at", float("-inf"))
    collector.tick()
    assert looks_at_all() == began + 1
    KEYS.pressed()
    for _ in range(10):
        gc.collect(1)
    collector.tick()
    assert looks_at_all() == began + 2, "so much cannot wait for who types on and on"
