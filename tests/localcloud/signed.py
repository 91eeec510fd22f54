"""Requests signed by botocore and sent raw, so that every byte of them can be spoilt first."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support.local_cloud import LocalCloud


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The error's code."""
        return self.headers.get("x-amzn-errortype", "")


def send(
    cloud: LocalCloud,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    headers: dict[str, str] | None = None,
    spoil: Callable[[AWSRequest], None] = lambda request: None,
    is_presigned: bool = False,
    other: Mapping[str, str] | None = None,
) -> Reply:
    """Sign a request as botocore does, spoil it, send it.

    Args:
        path: Raw path and query.
        spoil: Changes the signed request.
        other: `key`, `secret`, `token`, `service` or `region` other than this home's.
    """
    told, changes = cloud.told(), other or {}
    credentials = Credentials(
        changes.get("key", told["access_key_id"]),
        changes.get("secret", told["secret_access_key"]),
        changes.get("token"),
    )
    request = AWSRequest(method=method, url=told["endpoint_url"] + path, data=body, headers=headers or {})
    signer = SigV4QueryAuth if is_presigned else SigV4Auth
    service = changes.get("service", "lambda")
    signer(credentials, service, changes.get("region", told["region"])).add_auth(request)
    spoil(request)
    url = urlsplit(request.url)
    return raw_send(
        cloud, method, f"{url.path}?{url.query}" if url.query else url.path, request.data or b"", dict(request.headers)
    )


def raw_send(cloud: LocalCloud, method: str, target: str, body: bytes, headers: dict[str, str]) -> Reply:
    """Send exactly this."""
    url = urlsplit(cloud.told()["endpoint_url"])
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=10)
    try:
        connection.putrequest(method, target, skip_host="Host" in headers, skip_accept_encoding=True)
        sent: dict[str, Any] = {**headers, **({"Content-Length": str(len(body))} if body or method == "POST" else {})}
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        response = connection.getresponse()
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()
