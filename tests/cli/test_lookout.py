"""Whoever follows the events hears of trouble, for following looks for it; and so does the hook."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.killed_server import kill_server
from tests.support.sbx import DEADLINE_S, Sbx, sbx_home

CONFIG = """
[watch]
hook = "cat >> {heard}"
waits_after_s = 0.5
silent_after_s = 3
"""


@pytest.fixture
def sbx(tmp_path: Path) -> Iterator[Sbx]:
    """A home that looks ten times as often, and is told of trouble soon."""
    with sbx_home(tmp_path / "home", SBX_TIME_SCALE="10") as own:
        (own.home / "config").mkdir()
        (own.home / "config" / "config.toml").write_text(CONFIG.format(heard=tmp_path / "heard"))
        yield own


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


@pytest.mark.long
def test_jobs_that_ask_or_say_nothing_a_server_that_died_and_a_cap_are_events_and_the_hook_hears_each_once(
    sbx: Sbx, tmp_path: Path
) -> None:
    sbx.ok("create", "app", "--memory", "512")
    followers = [sbx.spawn("events", "--follow", "--json", "--tail", "0") for _ in range(2)]
    try:
        sbx.ok("exec", "-d", "-t", "app", "--", "sh", "-c", "printf 'Overwrite? [y/n] '; read answer")
        sbx.ok("exec", "-d", "app", "--", "sleep", "600")

        def heard(kind: str) -> list[str]:
            file = tmp_path / "heard"
            told = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
            return [one["words"] for one in told if one["kind"] == kind]

        until(lambda: heard("trouble.waiting") and heard("trouble.silent"))
        kill_server(sbx)
        # Ends in half a minute; a minute of the platform is six seconds.
        sbx.ok("create", "brief", "--memory", "512", "--max-duration", "340")
        until(lambda: heard("trouble.server") and any("less than 5 minutes" in words for words in heard("sandbox.cap")))
        (waits,), (silent,), (again,) = map(heard, ("trouble.waiting", "trouble.silent", "trouble.server"))
        assert waits.endswith(" waits for input: sh"), waits
        assert " has said nothing for 0." in silent and silent.endswith(" minutes: sleep")
        assert again == "app: its guest's server was started again; its jobs went on"
        assert heard("sandbox.cap")[-1].endswith("; sbx cp -r brief:/work . saves its files")
    finally:
        for follower in followers:
            follower.terminate()
    for follower in followers:
        told = [json.loads(line)["kind"] for line in follower.communicate()[0].splitlines()]
        assert [kind for kind in told if kind.startswith("trouble.")].count("trouble.server") == 1
