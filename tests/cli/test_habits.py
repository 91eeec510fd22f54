"""People come from docker: its short flags work where they mean the same, and say so where they do not."""

from __future__ import annotations

import argparse

import pytest

from sbxtui.cli import parser
from sbxtui.core.errors import UsageError
from tests.support.sbx import Sbx

# A line, and what its hint must speak of.
OTHER_MEANINGS = [
    ("create -i", "--image"),
    ("create x -i", "--image"),
    ("run -itd -- bash", "sbx exec -d"),
    ("create -it x", "sbx shell"),
    ("run -d -- make", "sbx exec -d"),
    ("create -e A=B x", "--env A="),
    ("run -e A=B -- env", "--env A="),
    ("run -eA=B -- env", "--env A="),
    ("run --rm -- ls", "always removes"),
    ("create --rm x", "sbx run"),
    ("create -v /a:/b x", "sbx cp"),
    ("run --volume=/a:/b -- ls", "sbx cp"),
    ("create --name x", "sbx create NAME"),
    ("create -u root", "sbx exec -u"),
]


@pytest.mark.parametrize(("line", "words"), OTHER_MEANINGS)
def test_a_flag_that_means_something_else_here_is_refused_with_what_to_write(line: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parser.parse(line.split())
    assert words in refused.value.hint


@pytest.mark.parametrize(
    ("line", "has_stdin", "has_terminal"),
    [
        ("run -it -- bash", True, True),
        ("run -ti bash", True, True),
        ("run -i -t bash", True, True),
        ("run -t -i -- bash", True, True),
        ("run -m 512 -it --name x bash", True, True),
        ("run -i -- bash", True, False),
        ("run -i --name x bash", True, False),
        ("run --stdin bash", True, False),
        ("run -t bash", False, True),
        ("run bash -it", False, False),
    ],
)
def test_a_one_shot_takes_input_and_terminal_as_with_docker(line: str, has_stdin: bool, has_terminal: bool) -> None:
    args = parser.parse(line.split())
    assert (args.stdin, args.tty, args.image, args.command[0]) == (has_stdin, has_terminal, "", "bash")


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("exec -e A=1 -w /tmp -u root app env -e", ["env", "-e"]),
        ("exec -eA=1 -w/tmp -uroot app -- env", ["env"]),
        ("exec app -e A=1 -w /tmp --user root -- env", ["env"]),
        ("exec -ite A=1 --workdir /tmp -u root app env", ["env"]),
    ],
)
def test_the_short_flags_of_exec_are_those_of_docker(line: str, command: list[str]) -> None:
    args = parser.parse(line.split())
    assert (args.env, args.cwd, args.user) == ([("A", "1")], "/tmp", "root")
    assert (args.sandbox, args.command) == ("app", command)


def test_image_and_egress_keep_the_letters_that_they_always_had() -> None:
    args = parser.parse(["run", "-i", "tools", "-m", "512", "-e", "-w", "/src", "-u", "root", "--", "make", "-j2"])
    assert (args.image, args.memory, args.egress, args.workdir, args.user) == ("tools", 512, True, "/src", "root")
    assert args.command == ["make", "-j2"]


@pytest.mark.parametrize("verb", ["exec", "run"])
def test_where_the_command_begins_is_known_with_every_flag_that_takes_a_value(verb: str) -> None:
    flags = [
        flag
        for action in parser.verbs()[verb]._actions
        if action.option_strings and action.nargs is None and not isinstance(action, argparse._HelpAction)
        for flag in action.option_strings
    ]
    assert sorted(parser._value_flags(verb) | parser._GLOBAL_VALUE_FLAGS) == sorted(flags)


def test_the_short_flags_reach_the_command(sbx: Sbx, app: str) -> None:
    told = sbx.ok("exec", "-e", "A=b c", "-w", "/tmp", "-u", "sandbox", app, "sh", "-c", 'echo "$A" && pwd && whoami')
    assert told.out.splitlines() == ["b c", "/tmp", "sandbox"]
