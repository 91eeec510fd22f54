"""What a line says is what is meant, or refused."""

from __future__ import annotations

import pytest

from sbxtui.cli import parser
from sbxtui.core.errors import UsageError


@pytest.mark.parametrize(
    ("size", "memory_mib"), [("512", 512), ("512M", 512), ("512MiB", 512), ("2g", 2048), ("2GiB", 2048)]
)
def test_memory_is_taken_as_people_write_it(size: str, memory_mib: int) -> None:
    assert parser.parse(["create", "-m", size]).memory == memory_mib
    assert parser.parse(["run", "-m", size, "--", "true"]).memory == memory_mib


@pytest.mark.parametrize("size", ["0", "0.5", "-1", "", "big", "512K", "0g", "٥١٢"])
def test_another_memory_size_tells_how_it_is_written(size: str) -> None:
    with pytest.raises(UsageError, match="in MiB, like 512"):
        parser.parse(["create", f"-m{size}" if size else "-m="])


@pytest.mark.parametrize(
    "line",
    [
        *("create --cpus 0", "create --idle 0", "create --max-duration 0", "fork x --max-duration 0"),
        *("exec --timeout 0 x -- true", "run --timeout 0s -- true", "keep-awake x --until job --deadline 0"),
    ],
)
def test_nothing_is_not_taken_for_the_default(line: str) -> None:
    with pytest.raises(UsageError, match=r"`0s?` is"):
        parser.parse(line.split())


@pytest.mark.parametrize(
    "line",
    [
        *("create --idle N", "create --max-duration N", "exec x --timeout N -- true", "keep-awake x --deadline N"),
        *("events --tail N", "network x --log --tail N", "logs x --tail N", "output x 0 --from N", "top --interval N"),
    ],
)
def test_a_number_beyond_all_that_counts_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match=r"a hundred years|too many digits"):
        parser.parse(line.replace("N", "9" * 400).split())


@pytest.mark.parametrize("line", ["cp||a1:", "cp|a1:x|", "fs|cat|a1|", "fs|rm|a1|x|", "fs|write|a1|", "fs|mv|a1||x"])
def test_an_empty_path_is_a_mistake(line: str) -> None:
    with pytest.raises(UsageError, match="cannot be empty"):
        parser.parse(line.split("|"))


@pytest.mark.parametrize("verb", ["exec", "run"])
def test_the_usage_of_what_takes_a_command_shows_where_it_goes(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse([verb, "--help"])
    usage = capsys.readouterr().out.partition("\n\n")[0]
    assert " ".join(usage.split()).endswith({"exec": "SANDBOX [--] CMD…", "run": "[ARN] -- CMD…"}[verb])


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ("help", "usage: sbx "),
        ("help help", "usage: sbx "),
        ("help exec", "usage: sbx exec "),
        ("help fs ls", "usage: sbx fs ls "),
    ],
)
def test_help_is_also_a_word(line: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse(line.split())
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(usage)


def test_help_for_no_verb_says_that_there_is_none() -> None:
    with pytest.raises(UsageError, match="no verb `execute`"):
        parser.parse(["help", "execute"])


@pytest.mark.parametrize(
    ("line", "hint"),
    [("LS", "did you mean `ls`"), ("snapshot", "one of create, ls, "), ("sync -q", "one of start, ls, ")],
)
def test_who_is_near_a_verb_is_led_to_it(line: str, hint: str) -> None:
    with pytest.raises(UsageError) as told:
        parser.parse(line.split())
    assert told.value.hint.startswith(hint)
