"""What the local cloud can do beside AWS's API: one signed HTTP request at a time, with the same key as every other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit

from sbxtui.control.local import LocalCloud
from sbxtui.core.errors import Conflict, ControlUnavailable, NotFound, SandboxNotFound, Unsupported, UsageError
from sbxtui.core.text import harmless_line
from sbxtui.core.threads import run_abandonable

_TIMEOUT_S = 15.0


async def ask_local_cloud(
    cloud: LocalCloud,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
    wait_s: float = 0.0,
) -> dict[str, Any]:
    """Ask the local cloud something below `/sbx/v1/`; cancelling gives up the wait.

    Args:
        cloud: One that serves now.
        method: GET, PUT or DELETE.
        path: Behind `/sbx/v1`.
        query: Its query.
        body: Sent as JSON.
        wait_s: How long the answer may take beyond the usual.

    Raises:
        SandboxNotFound: It knows no such sandbox. Conflict: The sandbox cannot have that.
        UsageError: The request is wrong. Unsupported: It is of an older sbx and knows no such thing.
        ControlUnavailable: It does not answer.
    """
    target = f"/sbx/v1{path}" + (f"?{urlencode(sorted(query.items()))}" if query else "")
    content = json.dumps(body).encode() if body is not None else b""
    status, answer = await run_abandonable(lambda: _exchange(cloud, method, target, content, _TIMEOUT_S + wait_s))
    if status == 200:
        return answer
    message = harmless_line(str(answer.get("message") or f"the local cloud answered {status}"))
    match status:
        case 404 if answer.get("resourceType") == "Snapshot":
            raise NotFound(message, hint="`sbx snapshot ls` lists them")
        case 404 if answer.get("resourceType") == "Base":
            raise NotFound(message, hint="`sbx local base ls` lists them")
        case 404 if answer.get("resourceType") == "Secret":
            raise NotFound(message, hint="`sbx secret ls SANDBOX` lists them")
        case 404 if "resourceId" in answer:
            raise SandboxNotFound(message, hint="`sbx ls --all` lists them")
        case 404:
            raise Unsupported(
                "the local cloud that serves now is of an older sbx",
                hint="`sbx local stop`: the next command starts the new one, and sandboxes live on",
            )
        case 409:
            raise Conflict(message)
        case 400:
            raise UsageError(message)
        case _:
            raise ControlUnavailable(message, hint="run `sbx doctor`")


def _exchange(
    cloud: LocalCloud, method: str, target: str, content: bytes, timeout_s: float
) -> tuple[int, dict[str, Any]]:
    url = cloud.endpoint_url + target
    place = urlsplit(cloud.endpoint_url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=timeout_s)
    try:
        connection.request(method, target, body=content, headers=_signed(cloud, method, url, content))
        response = connection.getresponse()
        answer = json.loads(response.read() or b"{}")
    except (OSError, HTTPException, ValueError) as exc:
        raise ControlUnavailable(f"the local cloud does not answer: {exc}", hint="run `sbx doctor`") from exc
    finally:
        connection.close()
    return response.status, answer if isinstance(answer, dict) else {}


def _signed(cloud: LocalCloud, method: str, url: str, content: bytes) -> dict[str, str]:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    keys = Credentials(cloud.credentials.access_key_id, cloud.credentials.secret_access_key)
    headers = {"Content-Type": "application/json"}
    request = AWSRequest(method=method, url=url, data=content, headers=headers)
    SigV4Auth(keys, "lambda", cloud.region).add_auth(request)
    return dict(request.headers.items())
