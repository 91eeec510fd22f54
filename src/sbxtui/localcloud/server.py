"""The API's HTTP side: one ASGI application that checks who calls, finds the operation, and renders the answer."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sbxtui.localcloud import faults, logsapi, sts
from sbxtui.localcloud.extensions import PREFIX, Extensions
from sbxtui.localcloud.faults import Fault, FaultBody
from sbxtui.localcloud.logsapi import LogsApi
from sbxtui.localcloud.model import decode_input, find_operation, response_status
from sbxtui.localcloud.routes import Api
from sbxtui.localcloud.sigv4 import HttpRequest, Verifier

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1 << 20
BODY_TIMEOUT_S = 30.0
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class App:
    """The application. `on_request` is told of every request, for the idle clock of the process."""

    def __init__(
        self,
        api: Api,
        extensions: Extensions,
        logs_api: LogsApi,
        verifier: Verifier,
        account_id: str,
        on_request: Callable[[], None],
    ) -> None:
        self._api = api
        self._extensions = extensions
        self._logs_api = logs_api
        self._verifier = verifier
        self._account_id = account_id
        self._on_request = on_request

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI: HTTP requests only; a WebSocket is refused by closing it."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1002})
            return
        self._on_request()
        request_id = str(uuid.uuid4())
        service = _service_of(scope)
        try:
            answer = await self._answer(scope, receive, service)
        except Fault as fault:
            answer = _fault_answer(fault.body, request_id, service)
        except OSError as exc:
            log.error("request %s: %s", request_id, exc)
            message = f"The local cloud cannot write its state: {exc.strerror or exc}"
            answer = _fault_answer(faults.internal(message).body, request_id, service)
        except Exception:
            log.exception("request %s broke", request_id)
            answer = _fault_answer(faults.internal(f"Internal error; request {request_id}").body, request_id, service)
        await _send(send, answer, request_id)

    async def _answer(self, scope: Message, receive: Receive, service: str) -> Answer:
        request = HttpRequest(
            method=scope["method"],
            raw_path=_ascii(scope["raw_path"]),
            query=_ascii(scope["query_string"]),
            headers=[(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]],
            body=await _read_body(receive),
        )
        _check_host(request.header("host"))
        self._verifier.check(request, service, now=datetime.now(UTC))
        if service == "logs":
            return Answer(200, json.dumps(await self._logs_api.answer(request)).encode(), logsapi.CONTENT_TYPE)
        if service == "sts":
            return Answer(200, sts.answer(request, self._account_id, self._verifier.access_key_id), "text/xml")
        if request.raw_path.startswith(PREFIX):
            return Answer(200, json.dumps(await self._extensions.answer(request)).encode())
        operation, labels = find_operation(request.method, request.raw_path)
        if not self._api.supports(operation):
            raise faults.unsupported(operation)
        params = decode_input(operation, labels, request.query, request.body)
        output = await self._api.handle(operation, params)
        return Answer(response_status(operation), json.dumps(output, default=_epoch).encode())


def _service_of(scope: Message) -> str:
    """The service that a request is for, as signatures name it: all are served on one port."""
    if scope["raw_path"] != b"/":
        return "lambda"
    return "logs" if logsapi.is_for_logs(scope["headers"]) else "sts"


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise faults.serialization("The request body ended early")
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise Fault(FaultBody("RequestEntityTooLargeException", 413, "The request body is too large"))
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError as exc:
        raise Fault(FaultBody("RequestTimeoutException", 408, "The request body did not arrive in time")) from exc


def _check_host(host: str) -> None:
    # A web page can make its own name resolve to 127.0.0.1; its requests still carry that name here.
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit():
        name = host
    if name.lower() not in _LOOPBACK_NAMES:
        raise faults.access_denied("The local cloud answers to loopback names only")


def _ascii(raw: bytes) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError as exc:
        raise faults.validation("The request line must be percent-encoded") from exc


def _epoch(value: object) -> float:
    if isinstance(value, datetime):
        return round(value.timestamp(), 3)
    raise TypeError(f"no JSON for {type(value).__name__}")


def _fault_answer(body: FaultBody, request_id: str, service: str) -> Answer:
    retry = (("Retry-After", str(body.retry_after_s)),) if body.retry_after_s is not None else ()
    if service == "sts":
        return Answer(body.status, sts.error(body, request_id), "text/xml", retry)
    if service == "logs":
        said = json.dumps({"__type": body.code, "message": body.message}).encode()
        return Answer(body.status, said, logsapi.CONTENT_TYPE, retry)
    document = json.dumps({"message": body.message, **body.members}).encode()
    return Answer(body.status, document, headers=(("x-amzn-ErrorType", body.code), *retry))


async def _send(send: Send, answer: Answer, request_id: str) -> None:
    headers = [
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(answer.body))),
        ("x-amzn-RequestId", request_id),
        *answer.headers,
    ]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": answer.body})
