"""The file in which a watchdog tells what it killed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbxtui.core.kills import Kill, Kills, kill_words

AT = "2026-03-01T12:00:00.000Z"
HOG = Kill(AT, "memory", 12, "python3", 600 << 20, 512 << 20)


@pytest.mark.parametrize(
    ("kill", "words"),
    [
        (HOG, "killed for memory: python3 (pid 12), 600 MiB of 512 MiB used, at " + AT),
        (replace(HOG, pid=0, command=""), "killed for memory: a process, 600 MiB of 512 MiB used, at " + AT),
        (replace(HOG, used=512 << 20), "killed for memory: python3 (pid 12), all 512 MiB used, at " + AT),
        (replace(HOG, limit="disk"), "killed for disk: python3 (pid 12), 600 MiB of 512 MiB used, at " + AT),
        (
            replace(HOG, limit="pids", used=70, allowed=64),
            "killed for pids: python3 (pid 12), 70 of 64 processes and threads, at " + AT,
        ),
    ],
)
def test_a_kill_tells_the_limit_first_then_who_how_much_and_when(kill: Kill, words: str) -> None:
    assert kill_words(kill) == words


def test_the_words_are_of_the_last_kill_and_count_them_all() -> None:
    assert Kills().words == ""
    assert Kills((HOG,), 1).words == kill_words(HOG)
    assert Kills((HOG, replace(HOG, limit="disk")), 40).words.startswith("killed for disk")
    assert Kills((HOG,), 40).words.endswith("(40 kills in all)")


@pytest.mark.parametrize(("seen", "new"), [(0, 2), (1, 2), (4, 1), (5, 0), (9, 0)])
def test_only_what_is_new_is_given_and_never_more_than_was_kept(seen: int, new: int) -> None:
    assert len(Kills((HOG, HOG), 5).after(seen)) == new


def test_kills_survive_json_and_a_newer_version_may_add_to_them() -> None:
    kills = Kills((HOG,), 3)
    assert Kills.from_json(kills.to_json()) == kills
    assert Kills.from_json(kills.to_json().replace('"pid"', '"future": 1, "pid"')) == kills


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"count": 1, "last": [{}]}', '{"count": 1, "last": 7}'])
def test_what_is_no_list_of_kills_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Kills.from_json(text)


def test_the_command_of_a_hostile_process_is_made_harmless() -> None:
    assert "\x1b" not in kill_words(replace(HOG, command="\x1b[31mred"))
