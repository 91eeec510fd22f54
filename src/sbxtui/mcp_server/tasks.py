"""The tasks extension: a command that goes on, as clients that know tasks ask for it. A task is a job, under its id.

So it outlives this server, and any other one tells of it as well.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver.server import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from sbxtui.core.errors import NotFound, SbxError
from sbxtui.core.jobs import Job
from sbxtui.core.text import harmless_line, iso
from sbxtui.mcp_server.call import Call
from sbxtui.mcp_server.client import TASKS, RequestClient, TaskParams, name_of
from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.params import Args
from sbxtui.mcp_server.reply import INLINE_BYTES, failure, success
from sbxtui.mcp_server.tools_exec import reply_of
from sbxtui.mcp_server.watching import end, watch

_Context = ServerRequestContext[Any, Any]
# As the protocol has it, in its own spelling.
Task = dict[str, Any]
_POLL_MS = 2_000
_CANCELLED = "job.cancel"


class Tasks:
    """Answers what clients ask of tasks."""

    def __init__(self, face: Face) -> None:
        self._face = face

    async def get(self, context: _Context, params: TaskParams) -> Task:
        """How a task is, and what came of it."""
        call, job = await self._found(context, params)
        try:
            job = job if job.is_over else await call.services.jobs.look(job)
            if not job.is_over:
                return _told(job, "working")
            if await call.services.jobs.is_noted(job, _CANCELLED):
                return _told(job, "cancelled")
            seen = await watch(call, job, wait_s=0, keep_bytes=INLINE_BYTES)
            result = success(reply_of(call, seen))
        except SbxError as exc:
            # Its sandbox may be suspended, or gone: that is what came of the call.
            result = failure(exc)
        return {**_told(job, "completed"), "result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}

    async def update(self, context: _Context, params: TaskParams) -> Task:
        """Answers to what a task asked; ours ask nothing."""
        await self._found(context, params)
        return {}

    async def cancel(self, context: _Context, params: TaskParams) -> Task:
        """End what it does; how it then ends is seen by asking."""
        call, job = await self._found(context, params)
        if not job.is_over:
            await call.services.jobs.notes.event(job, _CANCELLED)
            self._face.later(end(call, job))
        return {}

    async def _found(self, context: _Context, params: TaskParams) -> tuple[Call, Job]:
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(METHOD_NOT_FOUND, "tasks are of newer revisions")
        require_client_extension(context, TASKS)
        _check_route(context, params)
        services = await self._face.services(name_of(context))
        client = RequestClient(context, CallToolRequestParams(name=context.method))
        try:
            return self._face.call(Args({}), services, client), await services.job_lists.find(params.task_id)
        except NotFound as exc:
            raise MCPError(INVALID_PARAMS, f"there is no task `{harmless_line(params.task_id, limit=80)}`") from exc


def task_of(job: Job) -> Task:
    """What is sent instead of a result: that it goes on as a task."""
    return {"resultType": "task", **_told(job, "working")}


def _told(job: Job, status: str) -> dict[str, Any]:
    changed_at = job.ended_at or (job.created_at if job.is_over else datetime.now(UTC))
    return {
        "taskId": job.id,
        "status": status,
        "createdAt": iso(job.created_at),
        "lastUpdatedAt": iso(changed_at),
        # It is there for as long as its sandbox is.
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }


def _check_route(context: _Context, params: TaskParams) -> None:
    """What stands between a client and us goes by the header: it must say the same as the request."""
    headers = getattr(context.request, "headers", None)
    named = headers.get(MCP_NAME_HEADER) if headers is not None else None
    if named is not None and named != params.task_id:
        raise MCPError(HEADER_MISMATCH, f"header {MCP_NAME_HEADER} is not the task of the request")
