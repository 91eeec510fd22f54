"""Running one tool call: in a task of its own, so that a cancel can take back what it began in peace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from mcp_types import CallToolResult, InputRequiredResult

from sbxtui.core.errors import SbxError
from sbxtui.mcp_server.client import QuestionAsked, RequestClient
from sbxtui.mcp_server.codes import CANCELLED
from sbxtui.mcp_server.face import Face
from sbxtui.mcp_server.gate import Wanted, admit
from sbxtui.mcp_server.params import check
from sbxtui.mcp_server.reply import code_of_result, failure, success
from sbxtui.mcp_server.tasks import Task, task_of
from sbxtui.mcp_server.tool import Tool

log = logging.getLogger(__name__)

Result = CallToolResult | InputRequiredResult | Task


async def run_tool(face: Face, tool: Tool, sent: Mapping[str, object], client: RequestClient) -> Result:
    """Run a tool to its result, which says whether it failed. A cancel ends the work, and nothing more is sent."""
    task = face.finish(_result(face, tool, sent, client))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # The protocol's own scope cancels each await in it again and again: cleaning up needs a task outside of it.
        client.close()
        task.cancel()
        raise
    finally:
        client.close()


async def _result(face: Face, tool: Tool, sent: Mapping[str, object], client: RequestClient) -> Result:
    code = CANCELLED
    try:
        result = await _answered(face, tool, sent, client)
        code = code_of_result(result)
        return result
    finally:
        face.note_call(client.name, tool.name, code)


async def _answered(face: Face, tool: Tool, sent: Mapping[str, object], client: RequestClient) -> Result:
    try:
        args = check(tool.params, sent)
        async with face.turns.of(args.text(tool.in_turn_by)):
            standing = await face.standing(client.name)
            call = face.call(args, standing.services, client)
            await admit(standing, Wanted(tool, args, call.progress))
            reply = await tool.run(call)
        if reply.goes_on is not None and client.takes_tasks:
            return task_of(reply.goes_on)
        return success(reply, call.warnings)
    except QuestionAsked as asked:
        return asked.as_result()
    except SbxError as exc:
        return failure(exc)
    except OSError as exc:
        where = f"{exc.filename}: " if exc.filename else ""
        return failure(SbxError(f"{where}{exc.strerror or exc}", hint="`runtime_check` looks at this machine"))
    except Exception as exc:
        log.exception("%s failed", tool.name)
        return failure(SbxError(f"sbx failed: {type(exc).__name__}", hint="its standard error says more"))
