"""The API's HTTP side: one ASGI application that checks who calls, finds the operation, and renders the answer."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sbxtui.localcloud import faults, livetail, logsapi, sts
from sbxtui.localcloud.account import REGION
from sbxtui.localcloud.arns import moved
from sbxtui.localcloud.asgi import Answer, Message, Receive, Send, body_pieces, read_body, send_answer, service_of
from sbxtui.localcloud.extensions import PREFIX, Extensions
from sbxtui.localcloud.faults import Fault, FaultBody
from sbxtui.localcloud.livetail import LiveTail
from sbxtui.localcloud.logsapi import LogsApi
from sbxtui.localcloud.model import Route, decode_input, find_operation, response_status
from sbxtui.localcloud.rehearsal.api import PREFIX as FAULTS
from sbxtui.localcloud.rehearsal.calls import HTML_502, BadGateway, Rehearsal
from sbxtui.localcloud.routes import Api
from sbxtui.localcloud.s3 import api as s3
from sbxtui.localcloud.sigv4 import HttpRequest, Verifier

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1 << 20
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_NO_CONTENT = 204


@dataclass(frozen=True, slots=True)
class Services:
    """Who answers for each service."""

    api: Api
    extensions: Extensions
    logs: LogsApi
    s3: s3.S3Api
    rehearsal: Rehearsal


class App:
    """The application. `on_request` is told of every request, for the idle clock of the process."""

    def __init__(self, services: Services, verifier: Verifier, account_id: str, on_request: Callable[[], None]) -> None:
        self._services = services
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
        service = service_of(scope)
        try:
            answer = await self._answer(scope, receive, service)
        except Fault as fault:
            answer = _fault_answer(fault.body, request_id, service)
        except BadGateway:
            answer = Answer(502, HTML_502, "text/html")
        except OSError as exc:
            log.error("request %s: %s", request_id, exc)
            message = f"The local cloud cannot write its state: {exc.strerror or exc}"
            answer = _fault_answer(faults.internal(message).body, request_id, service)
        except Exception:
            log.exception("request %s broke", request_id)
            answer = _fault_answer(faults.internal(f"Internal error; request {request_id}").body, request_id, service)
        await send_answer(receive, send, answer, request_id)

    async def _answer(self, scope: Message, receive: Receive, service: str) -> Answer:
        request = HttpRequest(
            method=scope["method"],
            raw_path=_ascii(scope["raw_path"]),
            query=_ascii(scope["query_string"]),
            headers=[(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]],
            body=b"" if service == "s3" else await read_body(receive, MAX_BODY_BYTES),
        )
        _check_host(request.header("host"))
        region = self._verifier.check(request, service, now=self._now(request))
        match service:
            case "s3":
                return await self._answer_s3(request, receive)
            case "logs":
                return await self._answer_logs(request)
            case "sts":
                return Answer(200, sts.answer(request, self._account_id, self._verifier.access_key_id), "text/xml")
        if request.raw_path.startswith(PREFIX):
            return Answer(200, json.dumps(await self._services.extensions.answer(request)).encode())
        route, labels = find_operation(request.method, request.raw_path)
        params = decode_input(route, labels, request.query, request.body)
        try:
            return await self._answer_call(route, moved(params, region, REGION), region)
        except Fault as fault:
            body = fault.body
            told = replace(
                body, message=moved(body.message, REGION, region), members=moved(body.members, REGION, region)
            )
            raise Fault(told) from fault

    def _now(self, request: HttpRequest) -> datetime:
        # A clock that is off on purpose must not keep anybody from setting it right.
        is_about_faults = request.raw_path.startswith(FAULTS)
        return datetime.now(UTC) + (timedelta() if is_about_faults else self._services.rehearsal.book.clock_shift)

    async def _answer_call(self, route: Route, params: dict[str, Any], region: str) -> Answer:
        rehearsal = self._services.rehearsal
        await rehearsal.before_call(route.operation, params)
        output = moved(await self._services.api.handle(route.operation, params), REGION, region)
        status = response_status(route)
        document = b"" if status == _NO_CONTENT else json.dumps(output, default=_epoch).encode()
        return Answer(status, document, cut_after=rehearsal.cut_after(route.operation))

    async def _answer_logs(self, request: HttpRequest) -> Answer:
        said = await self._services.logs.answer(request)
        if isinstance(said, LiveTail):
            return Answer(200, content_type=livetail.CONTENT_TYPE, pieces=said.events())
        return Answer(200, json.dumps(said).encode(), logsapi.CONTENT_TYPE)

    async def _answer_s3(self, request: HttpRequest, receive: Receive) -> Answer:
        reply = await self._services.s3.answer(request, body_pieces(receive), self._verifier.chain_of(request))
        return Answer(reply.status, reply.body, s3.XML, reply.headers, reply.file, reply.offset, reply.size_bytes)


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
    if service == "s3":
        return Answer(body.status, s3.error(body, request_id), s3.XML, retry)
    if service == "logs":
        said = json.dumps({"__type": body.code, "message": body.message}).encode()
        return Answer(body.status, said, logsapi.CONTENT_TYPE, retry)
    document = json.dumps({"message": body.message, **body.members}).encode()
    return Answer(body.status, document, headers=(("x-amzn-ErrorType", body.code), *retry))
