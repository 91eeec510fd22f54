"""Arguments of tools: what is understood, and what is refused with a word that helps."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from sbxtui.core.errors import UsageError
from sbxtui.mcp_server.catalog import TOOLS, offered
from sbxtui.mcp_server.codes import CODES, code_of
from sbxtui.mcp_server.offer import listed
from sbxtui.mcp_server.options import Options
from sbxtui.mcp_server.params import Kind, Param, check, full_schema, input_schema, rare
from sbxtui.mcp_server.tool import Effect, Toolset

# The names that agents know from the server this one takes the place of, and that its pages list.
KNOWN_NAMES = [
    "runtime_check",
    "runtime_install",
    "sandbox_run",
    "sandbox_create",
    "sandbox_start",
    "sandbox_list",
    "sandbox_status",
    "sandbox_inspect",
    "sandbox_stop",
    "sandbox_remove",
    "sandbox_wait",
    "sandbox_exec",
    "sandbox_shell",
    "sandbox_logs_read",
    "sandbox_logs_stream",
    "sandbox_fs_read",
    "sandbox_fs_write",
    "sandbox_fs_list",
    "sandbox_fs_mkdir",
    "sandbox_fs_remove",
    "sandbox_fs_copy",
    "sandbox_fs_rename",
    "sandbox_fs_stat",
    "sandbox_fs_exists",
    "sandbox_fs_copy_from_host",
    "sandbox_fs_copy_to_host",
    "sandbox_metrics",
    "sandbox_metrics_all",
    "sandbox_metrics_stream",
    "image_list",
    "image_inspect",
    "image_remove",
    "image_prune",
]
# Of some, the arguments too, in every spelling that agents use.
KNOWN_ARGUMENTS = {
    "sandbox_exec": "name command args cwd env timeout workdir timeoutMs maxBytes stdin stdinBase64 user",
    "sandbox_create": "name cpus memory egress egress_connector image env memoryMib maxDurationS workdir",
    "sandbox_run": "command name cpus memory image env memoryMib",
    "sandbox_wait": "name target timeout until timeoutMs",
    "sandbox_fs_read": "name path encoding maxBytes",
    "sandbox_fs_write": "name path content encoding",
    "sandbox_fs_copy": "name src dst from to",
    "sandbox_fs_rename": "name src dst from to",
    "sandbox_fs_copy_from_host": "name host_path dest hostPath guestPath",
    "sandbox_fs_copy_to_host": "name src host_path hostPath guestPath",
    "sandbox_logs_read": "name tail since_minutes grep log_group since maxBytes",
    "sandbox_logs_stream": "name cursor follow_timeout_ms followTimeoutMs fromCursor grep",
    "sandbox_metrics_stream": "name samples interval_ms intervalMs",
    "sandbox_exec_poll": "execSessionId cursor maxBytes",
    "sandbox_exec_write_stdin": "execSessionId data dataBase64 close",
    "sandbox_exec_signal": "execSessionId signal",
    "image_list": "managed",
    "image_inspect": "image_arn reference",
    "image_remove": "image_arn confirm",
    "image_prune": "confirm",
}


def test_every_known_tool_is_there_under_its_name() -> None:
    assert len(KNOWN_NAMES) == 33
    assert sorted(set(KNOWN_NAMES) - {tool.name for tool in TOOLS}) == []


@pytest.mark.parametrize("name", KNOWN_ARGUMENTS)
def test_every_known_spelling_of_an_argument_is_understood(name: str) -> None:
    tool = next(tool for tool in TOOLS if tool.name == name)
    known = {spelling for param in tool.params for spelling in param.spellings}
    assert sorted(set(KNOWN_ARGUMENTS[name].split()) - known) == []


def test_what_is_listed_is_small_and_every_client_can_read_it() -> None:
    told = [listed(tool).model_dump(by_alias=True, exclude_none=True) for tool in TOOLS]
    core = [one for one, tool in zip(told, TOOLS, strict=True) if tool.toolset is Toolset.CORE]
    (create,) = [one for one in told if one["name"] == "sandbox_create"]
    assert len({one["name"] for one in told}) == len(TOOLS) <= 48 and len(core) <= 20
    assert (_size(told) <= 32_000, _size(core) <= 11_000, _size(create) <= 1_600) == (True, True, True)
    for one in told:
        assert re.fullmatch(r"[a-z][a-z0-9_]{2,39}", one["name"])
        assert one["description"] and "readOnlyHint" in one["annotations"]
        for schema in one["inputSchema"]["properties"].values():
            _check_portable(schema)


def _size(told: object) -> int:
    """Bytes as they are sent."""
    return len(json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode())


def _check_portable(schema: dict[str, Any]) -> None:
    assert set(schema) <= {"type", "description", "enum", "minimum", "maximum", "items", "additionalProperties"}
    assert isinstance(schema["type"], str) and schema["description"]


def test_fewer_tools_are_offered_where_fewer_are_asked_for() -> None:
    readers = {tool.name: tool for tool in offered(Options(is_read_only=True))}
    assert {tool.effect for tool in readers.values()} == {Effect.READS}
    # Of what both looks and changes, the looking half stays.
    assert [param.name for param in readers["sandbox_cost"].params] == ["name"]
    assert readers["sandbox_snapshot"].params[0].choices == ("list",) and "sandbox_fork" not in readers
    chosen = [tool.name for tool in offered(Options(toolsets=("images",), tools=("sandbox_exec",)))]
    assert chosen == ["sandbox_exec", "image_list", "image_inspect", "image_remove", "image_prune"]
    for options in (Options(toolsets=("corn",)), Options(tools=("sandbox_exe",))):
        with pytest.raises(UsageError, match="there is no tool"):
            offered(options)


PARAMS = (
    Param("name", help="x", is_required=True, aliases=("id",)),
    Param("memory", Kind.WHOLE, "x", least=1, most=9_000, aliases=("memoryMib",)),
    Param("is_all", Kind.FLAG, "x"),
    Param("words", Kind.WORDS, "x"),
    Param("env", Kind.VARIABLES, "x"),
    Param("mode", help="x", choices=("a", "b")),
    *rare(Param("idle_s", Kind.WHOLE, "x"), Param("labels", Kind.VARIABLES, "x")),
)


def test_numbers_and_flags_that_were_sent_as_text_are_understood() -> None:
    args = check(
        PARAMS, {"id": "n", "memoryMib": "512", "isAll": "true", "env": {"A": 1}, "words": ["x"], "mode": None}
    )
    assert (args.text("name"), args.whole("memory"), args.flag("is_all")) == ("n", 512, True)
    assert (args.variables("env"), args.words("words"), args.text("mode", "a")) == ({"A": "1"}, ("x",), "a")


def test_what_is_rare_is_sent_among_the_options_or_beside_them() -> None:
    args = check(PARAMS, {"name": "n", "options": {"idleS": 60, "mode": "b", "words": None}, "labels": {"a": "b"}})
    assert (args.whole("idle_s"), args.text("mode"), args.variables("labels")) == (60, "b", {"a": "b"})
    assert "options" not in args and "labels" not in check(PARAMS, {"name": "n", "options": None})


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({}, "`name` is missing"),
        ({"name": "n", "nmae": "m"}, "there is no argument `nmae`"),
        ({"name": "n", "id": "m"}, "`name` was sent twice"),
        ({"name": 7}, "`name` must be a text"),
        ({"name": "a\0b"}, "`name` must be a text"),
        ({"name": "n", "memory": "much"}, "`memory` must be a whole number"),
        ({"name": "n", "memory": 0}, "`memory` cannot be 0"),
        ({"name": "n", "memory": True}, "`memory` must be a whole number"),
        ({"name": "n", "words": "x"}, "`words` must be a list"),
        ({"name": "n", "env": {"A": ["x"]}}, "`env` must be an object"),
        ({"name": "n", "mode": "c"}, "`mode` cannot be `c`"),
        ({"name": "n", "is_all": "perhaps"}, "`is_all` must be true or false"),
        ({"name": "n", "options": "idle_s=60"}, "`options` must be an object"),
        ({"name": "n", "options": {"idle": 60}}, "there is no argument `idle`"),
        ({"name": "n", "idle_s": 60, "options": {"idle_s": 60}}, "`idle_s` was sent twice"),
        ({"name": "n", "options": {"options": {}}}, "there is no argument `options`"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(sent: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        check(PARAMS, sent)
    assert code_of(caught.value) == "invalid_argument" and "invalid_argument" in CODES


def test_a_schema_names_what_is_required() -> None:
    schema = input_schema(PARAMS)
    assert schema["required"] == ["name"]
    assert schema["properties"]["mode"]["enum"] == ["a", "b"]
    assert "idle_s, labels" in schema["properties"]["options"]["description"]
    assert full_schema(PARAMS)["properties"]["idle_s"]["type"] == "integer"
