"""The client of one request, as the protocol gives it, in whichever of its two eras."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types import (
    CallToolRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

_ANSWER_S = 300.0
_KEY = "confirm"
TASKS = "io.modelcontextprotocol/tasks"
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {_KEY: {"type": "boolean", "title": "Do it", "description": "It cannot be taken back."}},
    "required": [_KEY],
}


class TaskParams(RequestParams):
    """What names a task."""

    task_id: str


def name_of(context: ServerRequestContext[Any, Any]) -> str:
    """What a client calls itself; empty when it does not say."""
    told = context.session.client_params
    return told.client_info.name if told is not None else ""


class QuestionAsked(Exception):
    """The person behind the client has to answer first."""

    def __init__(self, question: str) -> None:
        super().__init__(question)
        self.question = question

    def as_result(self) -> InputRequiredResult:
        """What is sent instead of a result."""
        request = ElicitRequest(params=ElicitRequestFormParams(message=self.question, requested_schema=_FORM))
        return InputRequiredResult(input_requests={_KEY: request}, request_state=_digest(self.question))


def takes_tasks(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether a client says that it knows tasks; only newer ones can."""
    capabilities = context.session.client_capabilities
    declared = capabilities.extensions if capabilities is not None else None
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS and TASKS in (declared or {})


class RequestClient:
    """Who sent a request. Once closed it is told nothing more."""

    def __init__(self, context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> None:
        self._context = context
        self._params = params
        self._is_closed = False

    @property
    def name(self) -> str:
        """What it calls itself; empty when it does not say."""
        return name_of(self._context)

    @property
    def takes_tasks(self) -> bool:
        """Whether it knows what a task is."""
        return takes_tasks(self._context)

    def close(self) -> None:
        """The request is over."""
        self._is_closed = True

    async def progress(self, step: int, words: str) -> None:
        """Say what is being done, if the request asked for it."""
        if not self._is_closed:
            await self._context.session.report_progress(step, None, words)

    async def ask(self, question: str) -> bool | None:
        """Let the person decide; None where the client cannot ask, or nobody answers.

        Raises:
            QuestionAsked: The answer comes with another call.
        """
        if not self._can_ask:
            return None
        if not self._context.session.can_send_request:
            return self._answered(question)
        try:
            async with asyncio.timeout(_ANSWER_S):
                session = self._context.session
                return _agrees(await session.elicit_form(question, _FORM, related_request_id=self._context.request_id))
        except TimeoutError:
            return None

    @property
    def _can_ask(self) -> bool:
        capabilities = self._context.session.client_capabilities
        asking = capabilities.elicitation if capabilities is not None else None
        # Bare `elicitation` is from before there were several ways.
        return asking is not None and (asking.form is not None or asking.url is None)

    def _answered(self, question: str) -> bool:
        answer = (self._params.input_responses or {}).get(_KEY)
        # What would be lost may be something else by now: then the question is another one.
        if not isinstance(answer, ElicitResult) or self._params.request_state != _digest(question):
            raise QuestionAsked(question)
        return _agrees(answer)


def _agrees(answer: ElicitResult) -> bool:
    return answer.action == "accept" and (answer.content or {}).get(_KEY) is True


def _digest(question: str) -> str:
    return hashlib.sha256(question.encode("utf-8", "replace")).hexdigest()[:32]
