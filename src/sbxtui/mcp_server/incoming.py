"""What a client's line says. A request that is no good gets an answer all the same: whoever sent it waits for one."""

from __future__ import annotations

import json
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
        document = _mended(line)
    try:
        return jsonrpc_message_adapter.validate_json(dumped(document), by_name=False)
    except ValueError:
        return list(_refusals(document))


def _mended(line: bytes) -> object:
    """What Python's more patient reader makes of it; None where it is no JSON."""
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _refusals(document: object) -> Iterator[JSONRPCError]:
    # Revisions of the protocol that are spoken no more sent several requests in one line.
    for one in document if isinstance(document, list) else [document]:
        if isinstance(one, dict) and not {"result", "error"} & one.keys() and _is_id(one.get("id")):
            words = "not a request of JSON-RPC 2.0" if one is document else "one request a line"
            yield JSONRPCError(jsonrpc="2.0", id=one["id"], error=ErrorData(code=INVALID_REQUEST, message=words))


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
