"""A real HTTP server that answers as AWS would, line by line, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. A `dict` body is sent as JSON; `hangs` never answers until the server closes."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False


def error(status: int, code: str, message: str | None = "", **members: Any) -> Reply:
    """An error as rest-json services answer it."""
    return Reply(status, {"message": message, **members}, {"x-amzn-ErrorType": code})


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in: the raw path keeps its percent signs."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    body: Any


class AwsServer:
    """Answers each request with the next scripted reply; the last one is repeated."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.asked: list[Asked] = []
        self._replies = list(replies)
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, *replies: Reply) -> None:
        """Forget what was asked and answer with these from now on."""
        with self._lock:
            self.asked.clear()
            self._replies = list(replies)

    def answer(self, asked: Asked) -> Reply:
        """Remember a request and choose its answer."""
        with self._lock:
            self.asked.append(asked)
            return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]

    def close(self) -> None:
        """Stop listening and let go of requests that hang."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def aws_server(*replies: Reply) -> Iterator[AwsServer]:
    """A server with its script, closed on leaving."""
    server = AwsServer(replies)
    try:
        yield server
    finally:
        server.close()


def _handler(server: AwsServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            parts = urlsplit(self.path)
            asked = Asked(self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), _parsed(raw))
            reply = server.answer(asked)
            if reply.hangs:
                server.closing.wait(60)
                self.close_connection = True
                return
            body = json.dumps(reply.body) if isinstance(reply.body, dict | list) else reply.body
            content = body.encode() if isinstance(body, str) else body
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the tests look at `asked`."""

    return Handler


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors="replace")
