"""What clients read: resources, prompts and completions, as the protocol has them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)
from mcp_types import Prompt as ListedPrompt

from sbxtui.core.errors import NotFound, SbxError, UsageError
from sbxtui.core.text import brief
from sbxtui.mcp_server.client import name_of
from sbxtui.mcp_server.completion import MOST, completed
from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.prompts import PROMPTS, Prompt, written
from sbxtui.mcp_server.resources import RESOURCES, read

log = logging.getLogger(__name__)

_Context = ServerRequestContext[Any, Any]
_Page = PaginatedRequestParams | None
T = TypeVar("T")


class Reading:
    """Answers what clients read of one server."""

    def __init__(self, face: Face) -> None:
        self._face = face

    async def list_resources(self, context: _Context, params: _Page) -> ListResourcesResult:
        """Those that are always there."""
        return ListResourcesResult(
            resources=[
                Resource(uri=one.uri, name=one.path, description=one.help, mime_type=one.mime_type)
                for one in RESOURCES
                if not one.is_template
            ]
        )

    async def list_templates(self, context: _Context, params: _Page) -> ListResourceTemplatesResult:
        """Those of which there are many."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(uri_template=one.uri, name=one.path, description=one.help, mime_type=one.mime_type)
                for one in RESOURCES
                if one.is_template
            ]
        )

    async def read_resource(self, context: _Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """One of them."""
        services = await self._face.services(name_of(context))
        text, mime_type = await _translated(read(self._face, services, params.uri), {"uri": params.uri})
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=mime_type, text=text)])

    async def list_prompts(self, context: _Context, params: _Page) -> ListPromptsResult:
        """All."""
        return ListPromptsResult(prompts=[_listed(one) for one in PROMPTS])

    async def get_prompt(self, context: _Context, params: GetPromptRequestParams) -> GetPromptResult:
        """One, with its arguments put in."""
        try:
            text = written(params.name, params.arguments or {})
        except (NotFound, UsageError) as exc:
            raise MCPError(INVALID_PARAMS, exc.message) from exc
        return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text=text))])

    async def complete(self, context: _Context, params: CompleteRequestParams) -> CompleteResult:
        """What an argument may go on with."""
        services = await self._face.services(name_of(context))
        known = (params.context.arguments if params.context is not None else None) or {}
        found = await completed(services, params.argument.name, params.argument.value, known)
        return CompleteResult(completion=Completion(values=found[:MOST], total=len(found), has_more=len(found) > MOST))


async def _translated(work: Awaitable[T], data: dict[str, object]) -> T:
    """What was read, or the protocol's error."""
    try:
        return await work
    except (NotFound, UsageError) as exc:
        raise MCPError(INVALID_PARAMS, brief(exc.message), data) from exc
    except SbxError as exc:
        log.info("a resource could not be read: %s", exc.message)
        hint = f"; {exc.hint}" if exc.hint else ""
        raise MCPError(INTERNAL_ERROR, brief(f"{exc.message}{hint}"), data) from exc


def _listed(prompt: Prompt) -> ListedPrompt:
    arguments = [
        PromptArgument(name=one.name, description=one.help, required=one.is_required) for one in prompt.arguments
    ]
    return ListedPrompt(name=prompt.name, description=prompt.help, arguments=arguments)
