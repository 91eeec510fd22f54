"""What the official conformance suite asks of a server by names of its own, laid over ours: content that we offer, too.

What we do not offer has none here: logging, sampling and the client's folders, which left the protocol.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListToolsResult,
    Prompt,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    Tool,
)
from pydantic import BaseModel

_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
_PAUSE_S = 0.05

Document = dict[str, Any]
Fixture = Callable[[Any, Any], Awaitable[Document]]


def _text(text: str) -> Document:
    return {"type": "text", "text": text}


def _resource(uri: str, text: str, mime_type: str = "text/plain") -> Document:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}}


_IMAGE = {"type": "image", "data": _PIXEL, "mimeType": "image/png"}
_MIXED = _resource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
_SAID: Mapping[str, Document] = {
    "test_simple_text": {"content": [_text("This is a simple text response for testing.")]},
    "test_image_content": {"content": [_IMAGE]},
    "test_audio_content": {"content": [{"type": "audio", "data": _SILENCE, "mimeType": "audio/wav"}]},
    "test_embedded_resource": {
        "content": [_resource("test://embedded-resource", "This is an embedded resource content.")]
    },
    "test_multiple_content_types": {"content": [_text("Multiple content types test:"), _IMAGE, _MIXED]},
    "test_logging_tool": {"content": [_text("nothing is logged to clients")]},
    "test_error_handling": {
        "isError": True,
        "content": [_text("This tool intentionally returns an error for testing")],
    },
}
_KINDS = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)]
_PLAIN = ["option1", "option2", "option3"]
_FORMS: Mapping[str, Document] = {
    "test_elicitation": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": _PLAIN},
        "titledSingle": {"type": "string", "oneOf": _KINDS},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
        "titledMulti": {"type": "array", "items": {"anyOf": _KINDS}},
    },
}


async def _progress(context: Any, params: CallToolRequestParams) -> Document:
    for step in (0, 50, 100):
        await context.session.report_progress(step, 100)
        await asyncio.sleep(_PAUSE_S)
    return {"content": [_text("done")]}


def _says(name: str) -> Fixture:
    async def say(context: Any, params: CallToolRequestParams) -> Document:
        return _SAID[name]

    return say


def _fills_in(name: str) -> Fixture:
    async def ask(context: Any, params: CallToolRequestParams) -> Document:
        form = {"type": "object", "properties": _FORMS[name], "required": []}
        message = str((params.arguments or {}).get("message", "please"))
        answer = await context.session.elicit_form(message, form, related_request_id=context.request_id)
        return {"content": [_text(f"action={answer.action}, content={json.dumps(answer.content)}")]}

    return ask


def _asks(*rounds: tuple[str, str, str], state: str = "") -> Fixture:
    """A tool that needs an answer under each key, one after the other, and says the last."""

    states = [f"{state}{number}" for number in range(1, len(rounds) + 1)] if state else []

    async def ask(context: Any, params: CallToolRequestParams) -> Document:
        told, answers = params.request_state, params.input_responses or {}
        if state and told is not None and told not in states:
            raise MCPError(INVALID_PARAMS, "that is no state of ours")
        asked = states.index(told) + 1 if told in states else int(not state)
        is_answered = asked > 0 and rounds[asked - 1][0] in answers
        at = asked if is_answered else max(asked - 1, 0)
        if at == len(rounds):
            said = getattr(answers[rounds[-1][0]], "content", None)
            return {"content": [_text(f"Hello, {json.dumps(said)}! state-ok")]}
        key, message, field = rounds[at]
        form = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
        request = {"method": "elicitation/create", "params": {"message": message, "requestedSchema": form}}
        more = {"requestState": states[at]} if state else {}
        return {"resultType": "input_required", "inputRequests": {key: request}, **more}

    return ask


async def _needs_a_model(context: Any, params: CallToolRequestParams) -> Document:
    needed: Document = {"requiredCapabilities": {"sampling": {}}}
    raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "the client offers no model", needed)


TOOLS: Mapping[str, Fixture] = {
    **{name: _says(name) for name in _SAID},
    **{name: _fills_in(name) for name in _FORMS},
    "test_tool_with_progress": _progress,
    "test_missing_capability": _needs_a_model,
    # Asked in the call itself, as our own tools ask: it never becomes a task.
    "confirm_delete": _asks(("confirm", "Delete it?", "confirm")),
    "test_streaming_elicitation": _asks(("user_name", "What is your name?", "name")),
    "test_input_required_result_elicitation": _asks(("user_name", "What is your name?", "name")),
    "test_input_required_result_request_state": _asks(("confirm", "Please confirm", "ok"), state="ours-"),
    "test_input_required_result_tampered_state": _asks(("confirm", "Please confirm", "ok"), state="ours-"),
    "test_input_required_result_multi_round": _asks(
        ("step1", "Step 1: What is your name?", "name"),
        ("step2", "Step 2: What is your favorite color?", "color"),
        state="round-",
    ),
}


def _prompt(name: str, given: Mapping[str, str]) -> list[Document]:
    return {
        "test_simple_prompt": [_text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            _text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            _resource(given.get("resourceUri", ""), "Embedded resource content for testing."),
            _text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [_IMAGE, _text("Please analyze the image above.")],
    }[name]


PROMPTS = (
    "test_simple_prompt",
    "test_prompt_with_arguments",
    "test_prompt_with_embedded_resource",
    "test_prompt_with_image",
)


def _read(uri: str) -> Document | None:
    if uri == "test://static-text":
        return {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
    if uri == "test://static-binary":
        return {"mimeType": "image/png", "blob": _PIXEL}
    if uri.startswith("test://template/"):
        one = uri.split("/")[3]
        found = {"id": one, "templateTest": True, "data": f"Data for ID: {one}"}
        return {"mimeType": "application/json", "text": json.dumps(found)}
    return None


# Commands by the suite's names, as lines of a shell: what goes on becomes a task.
_JOBS = {"slow_compute": "sleep {seconds}; echo {label}", "failing_job": "sleep 1; exit 1"}


def _job(name: str, sandbox: str, ours: Fixture) -> Fixture:
    async def run(context: Any, params: CallToolRequestParams) -> Any:
        line = _JOBS[name].format_map({"seconds": 0, "label": "", **(params.arguments or {})})
        arguments = {"name": sandbox, "command": line, "wait_ms": 1}
        return await ours(context, params.model_copy(update={"name": "sandbox_shell", "arguments": arguments}))

    return run


async def _greet(context: Any, params: CallToolRequestParams) -> Document:
    return {"content": [_text(f"Hello, {(params.arguments or {}).get('name')}!")]}


def _typed(kind: type[BaseModel], told: Document) -> Any:
    """A document as the library's own kind of result, which fills in what every revision wants."""
    return told if "resultType" in told else kind.model_validate(told)


def lay_over(server: Server[Any], sandbox: str) -> None:
    """Have a server answer to the suite's names, too, with commands in a sandbox; to all others it answers as ever."""

    def over(method: str, params_type: Any, make: Callable[[Fixture], Fixture]) -> None:
        entry = server.get_request_handler(method)
        assert entry is not None
        server.add_request_handler(method, params_type, make(entry.handler))  # type: ignore[arg-type]  # as it was

    over("tools/call", CallToolRequestParams, partial(_called, sandbox))
    over("resources/read", ReadResourceRequestParams, _reading)
    over("prompts/get", GetPromptRequestParams, _prompted)
    _list_more(server)


def _called(sandbox: str, ours: Fixture) -> Fixture:
    fixtures = {**TOOLS, "greet": _greet}

    async def call(context: Any, params: CallToolRequestParams) -> Any:
        if params.name in _JOBS:
            return await _job(params.name, sandbox, ours)(context, params)
        if (fixture := fixtures.get(params.name)) is None:
            return await ours(context, params)
        return _typed(CallToolResult, await fixture(context, params))

    return call


def _reading(ours: Fixture) -> Fixture:
    async def read(context: Any, params: ReadResourceRequestParams) -> Any:
        found = _read(str(params.uri))
        if found is None:
            return await ours(context, params)
        return _typed(ReadResourceResult, {"contents": [{"uri": params.uri, **found}]})

    return read


def _prompted(ours: Fixture) -> Fixture:
    async def get(context: Any, params: GetPromptRequestParams) -> Any:
        if params.name not in PROMPTS:
            return await ours(context, params)
        told = _prompt(params.name, params.arguments or {})
        return _typed(GetPromptResult, {"messages": [{"role": "user", "content": one} for one in told]})

    return get


def _list_more(server: Server[Any]) -> None:
    """Have the lists name them."""
    more: Mapping[str, Callable[[Any], None]] = {
        "tools/list": lambda told: told.tools.extend(
            Tool(name=one, description="The suite's", input_schema={"type": "object"})
            for one in (*TOOLS, *_JOBS, "greet")
        ),
        "prompts/list": lambda told: told.prompts.extend(
            Prompt(name=one, description="The suite's") for one in PROMPTS
        ),
        "resources/list": lambda told: told.resources.append(Resource(uri="test://static-text", name="static")),
    }
    for method, add in more.items():
        entry = server.get_request_handler(method)
        assert entry is not None

        async def listed(context: Any, params: Any, entry: Any = entry, add: Any = add) -> Any:
            told: ListToolsResult | ListPromptsResult | ListResourcesResult = await entry.handler(context, params)
            told = told.model_copy(deep=True)
            add(told)
            return told

        server.add_request_handler(method, entry.params_type, listed)
