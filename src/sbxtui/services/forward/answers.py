"""What a client of a forward is told by sbx itself, in HTTP."""

from __future__ import annotations

from http import HTTPStatus

# What a sandbox that somebody starts takes to be back, and no load on anybody who waits for that.
_RETRY_AFTER_S = 5


def answer(status: int, why: str) -> bytes:
    """An answer of ours, behind which the connection is closed."""
    body = f"sbx: {why}\n".encode()
    later = f"retry-after: {_RETRY_AFTER_S}\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\n{later}connection: close\r\n\r\n"
    )
    return head.encode() + body
