"""What a client of a forward is told by sbx itself, in HTTP."""

from __future__ import annotations

from http import HTTPStatus


def answer(status: int, why: str) -> bytes:
    """An answer of ours, behind which the connection is closed."""
    body = f"sbx: {why}\n".encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
