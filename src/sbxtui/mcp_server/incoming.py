"""What a client's line says. A request that is no good gets an answer all the same: whoever sent it waits for one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter

from sbxtui.mcp_server.reply import dumped


def understood(line: bytes) -> JSONRPCMessage | list[JSONRPCError]:
    """The message of a line, or the answers to those requests in it that are none.

    Bytes that are no text, and halves of characters (lone surrogates), become U+FFFD.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    try:
        return _understood_patiently(line)
    except RecursionError:
        return _by_its_edges(line[:EDGE_BYTES], line[-EDGE_BYTES:], "a request that is nested too deep")


# How much of a line of any length is looked at for its number.
EDGE_BYTES = 4_096
# Where writers of JSON-RPC put the number of a request, besides its method and version: in front, or at the end.
_ID = rb'"id"\s*:\s*(?P<id>-?\d{1,18}|"[^"\\]{0,200}")\s*'
_IN_FRONT = re.compile(rb'\s*\{(?:\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,)*\s*' + _ID + rb"[,}]")
_AT_THE_END = re.compile(rb",\s*" + _ID + rb'(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*)*\}\s*\Z')


def too_long(front: bytes, end: bytes, limit_bytes: int) -> list[JSONRPCError]:
    """The answer to a request that was not read whole, from its first and its last bytes; none where it has no number
    in either.
    """
    return _by_its_edges(front, end, f"a request of over {limit_bytes >> 20} MiB: send less at a time")


def _by_its_edges(front: bytes, end: bytes, words: str) -> list[JSONRPCError]:
    found = _IN_FRONT.match(front) or _AT_THE_END.search(end)
    if found is None:
        return []
    return [
        JSONRPCError(jsonrpc="2.0", id=json.loads(found["id"]), error=ErrorData(code=INVALID_REQUEST, message=words))
    ]


def _understood_patiently(line: bytes) -> JSONRPCMessage | list[JSONRPCError]:
    """As Python's own reader has it; where it is nested too deep for that one, too, RecursionError."""
    try:
        document = json.loads(line.decode("utf-8", "replace"))
    except ValueError:
        # No JSON, or with a number of thousands of digits, which is JSON and more than anybody reads.
        is_request = b'"method"' in line
        return (
            _by_its_edges(line[:EDGE_BYTES], line[-EDGE_BYTES:], "a request that cannot be read") if is_request else []
        )
    try:
        return jsonrpc_message_adapter.validate_json(dumped(document), by_name=False)
    except ValueError:
        return list(_refusals(document))


def _refusals(document: object) -> Iterator[JSONRPCError]:
    # Revisions of the protocol that are spoken no more sent several requests in one line.
    for one in document if isinstance(document, list) else [document]:
        if isinstance(one, dict) and not {"result", "error"} & one.keys() and _is_id(one.get("id")):
            words = "not a request of JSON-RPC 2.0" if one is document else "one request a line"
            yield JSONRPCError(jsonrpc="2.0", id=one["id"], error=ErrorData(code=INVALID_REQUEST, message=words))


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
