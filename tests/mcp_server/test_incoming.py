"""What is made of a client's line, however long or broken it is."""

from __future__ import annotations

import json

import pytest

from sbxtui.mcp_server.incoming import too_long, understood

PARAMS = {"name": "x", "arguments": {"id": 9, "content": "a" * 9_000 + '","id":8}'}}


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": PARAMS}, 1),
        ({"method": "tools/call", "id": "one", "params": PARAMS, "jsonrpc": "2.0"}, "one"),
        ({"method": "tools/call", "params": PARAMS, "jsonrpc": "2.0", "id": 3}, 3),
        ({"params": PARAMS, "id": -4, "jsonrpc": "2.0", "method": "tools/call"}, -4),
        # A number of something else answers nobody.
        ({"jsonrpc": "2.0", "method": "notifications/x", "params": {"id": 5, **PARAMS}}, None),
        ({"params": {**PARAMS, "id": 6}}, None),
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_of_a_line_that_is_too_long_the_number_is_found_to_answer_it(
    fields: dict[str, object], number: object, separators: tuple[str, str]
) -> None:
    line = json.dumps(fields, separators=separators).encode()
    assert [one.id for one in too_long(line[:4_096], line[-4_096:], 64 << 20)] == ([] if number is None else [number])


def test_however_deep_a_request_is_nested_it_is_answered() -> None:
    for depth in (150, 250, 900, *range(930, 1_010, 2), 5_000, 100_000):
        line = b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"a":' + b"[" * depth + b"]" * depth + b"}}"
        told = understood(line)
        assert not isinstance(told, list) or [one.id for one in told] == [5]


def test_a_request_that_cannot_be_read_is_answered_and_what_is_none_is_not() -> None:
    digits = b'{"jsonrpc":"2.0","id":6,"method":"x","params":{"a":' + b"9" * 5_000 + b"}}"
    for line in (digits, digits[:300]):
        told = understood(line)
        assert isinstance(told, list) and [one.id for one in told] == [6]
    assert understood(b'{"jsonrpc":"2.0","id":7,"result":{"a":') == []
