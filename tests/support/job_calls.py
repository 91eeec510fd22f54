"""What tests ask of `/v2/jobs`: start a job of `sh`, wait for it, read its frames."""

from __future__ import annotations

from typing import Any

import httpx

from sbxguest.wire import Frame, FrameDecoder, FrameType


async def start_job(http: httpx.AsyncClient, job_id: str, script: str, **more: Any) -> dict[str, Any]:
    """Begin a script; its job document."""
    return await _asked(http, job_id, script, {}, more)


async def run_job(http: httpx.AsyncClient, job_id: str, script: str, **more: Any) -> dict[str, Any]:
    """The same, once it has ended."""
    return await _asked(http, job_id, script, {"wait_s": 20}, more)


async def job_frames(http: httpx.AsyncClient, job_id: str, **query: int) -> list[Frame]:
    """A job's log as the wire has it, without heartbeats."""
    reply = await http.get(f"/v2/jobs/{job_id}/log", params=query)
    assert reply.status_code == 200, reply.text
    return [frame for frame in FrameDecoder().feed(reply.content) if frame.type != FrameType.HEARTBEAT]


def error_of(reply: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal."""
    return reply.status_code, reply.json()["error"]["code"]


async def _asked(
    http: httpx.AsyncClient, job_id: str, script: str, query: dict[str, int], more: dict[str, Any]
) -> dict[str, Any]:
    body = {"id": job_id, "argv": ["sh", "-c", script], **more}
    reply = await http.post("/v2/jobs", params=query, json=body)
    assert reply.status_code == 201, reply.text
    document: dict[str, Any] = reply.json()
    return document
