"""`/healthz`, `/v2/hello`, `PUT /v2/launch` and `PUT /v2/secrets`."""

from __future__ import annotations

import posixpath
from dataclasses import asdict
from datetime import UTC, datetime

from sbxguest import boundary, wire
from sbxguest.app import Request, Response, Route, WireError, json_response
from sbxguest.jobspec import check_env
from sbxguest.version import GUEST_VERSION


async def healthz(_request: Request) -> Response:
    """`GET /healthz`: the server answers. Says nothing about /run."""
    return json_response({"status": "ok"})


async def hello(request: Request) -> Response:
    """`GET /v2/hello`."""
    state = request.guest.state
    return json_response(
        {
            "generation": wire.GENERATION,
            "features": list(wire.FEATURES),
            "guest_version": GUEST_VERSION,
            "boot_id": state.boot_id,
            "sandbox": asdict(state.identity),
            "workdir": state.workdir,
            "limits": dict(state.settings.limits),
            "isolation": state.settings.isolation,
            "now": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
    )


async def launch(request: Request) -> Response:
    """`PUT /v2/launch` {env, workdir, keeps_env}: what every later job starts with.

    Replaces what was set before, unless that is kept, as in a sandbox that goes on from another.
    """
    body = await request.json()
    env = check_env(body.get("env", {}))
    workdir = body.get("workdir", "")
    if not isinstance(workdir, str) or "\0" in workdir or (workdir and not posixpath.isabs(workdir)):
        raise WireError(400, "bad_workdir", "`workdir` must be an absolute path")
    root = request.guest.state.settings.root
    if workdir and not boundary.is_below(workdir, root):
        raise WireError(
            400,
            "bad_workdir",
            f"this sandbox shares the host's files: its working folder must lie below {root}",
            hint="leave the working folder out, or use an isolating runtime",
        )
    request.guest.state.set_launch(env, workdir, keeps_env=body.get("keeps_env") is True)
    return json_response({"workdir": request.guest.state.workdir})


async def secrets(request: Request) -> Response:
    """`PUT /v2/secrets` {env, defaults}: what stands for the sandbox's secrets, for every later job. Replaces all.

    `env` wins over the launch environment, `defaults` only fill its gaps.
    """
    body = await request.json()
    request.guest.state.set_secrets(check_env(body.get("env", {})), check_env(body.get("defaults", {})))
    return json_response({})


ROUTES = (
    Route("GET", "/healthz", healthz, is_always_open=True),
    Route("GET", "/v2/hello", hello),
    Route("PUT", "/v2/launch", launch),
    Route("PUT", "/v2/secrets", secrets),
)
