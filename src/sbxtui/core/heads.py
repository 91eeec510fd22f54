"""Heads of HTTP/1.1 messages: parsed strictly where the other side could mean something else, rewritten, written out.

Every rule here keeps two parsers in a row from disagreeing about where a message ends (RFC 9112 §6.3, §11.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

MAX_HEAD_BYTES = 65_536
MAX_HEADERS = 200

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}) ([\x21-\x7e\x80-\xff]+) HTTP/([0-9])\.([0-9])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n\x00]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")


class BadMessage(Exception):
    """A head or framing that is refused; `status` is what a client is told."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class Head:
    """A start line and header fields in order, as bytes; field names keep their spelling."""

    start: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    # Values by lower-case name: a head is asked for a dozen fields, most of which it does not have.
    _values: dict[bytes, list[bytes]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values: dict[bytes, list[bytes]] = {}
        for name, value in self.fields:
            values.setdefault(name.lower(), []).append(value)
        object.__setattr__(self, "_values", values)

    def values(self, name: bytes) -> list[bytes]:
        """All values of a field, by lower-case name."""
        return list(self._values.get(name, ()))

    def elements(self, name: bytes) -> list[bytes]:
        """The comma-separated elements of all its values, trimmed, in order."""
        if name not in self._values:
            return []
        return [element.strip() for value in self._values[name] for element in value.split(b",") if element.strip()]

    def has_element(self, name: bytes, element: bytes) -> bool:
        """Whether a list field names an element, in any case."""
        return name in self._values and any(item.lower() == element for item in self.elements(name))

    def without(self, is_dropped: Callable[[bytes], bool]) -> Head:
        """A copy without the fields whose lower-case name `is_dropped` accepts."""
        return Head(self.start, tuple(item for item in self.fields if not is_dropped(item[0].lower())))

    def plus(self, *fields: tuple[bytes, bytes]) -> Head:
        """A copy with more fields at the end."""
        return Head(self.start, self.fields + fields)

    def to_bytes(self) -> bytes:
        """As it goes over the wire, with the empty line."""
        return head_bytes(self.start, self.fields)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's head; `length` is the body's size, None when it is chunked."""

    head: Head
    method: bytes
    is_http10: bool
    length: int | None

    @property
    def target(self) -> bytes:
        """What is asked for, as the request line has it."""
        return self.head.start.split(b" ")[1]

    @property
    def is_keep_alive(self) -> bool:
        """Whether the client wants to send another request on the connection."""
        if self.is_http10:
            return self.head.has_element(b"connection", b"keep-alive")
        return not self.head.has_element(b"connection", b"close")

    @property
    def wants_upgrade(self) -> bool:
        """Whether a 101 may follow."""
        return self.head.has_element(b"connection", b"upgrade") and bool(self.head.values(b"upgrade"))

    @property
    def is_websocket(self) -> bool:
        """Whether it asks for a WebSocket."""
        return self.wants_upgrade and self.head.has_element(b"upgrade", b"websocket")


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response's head; `framing` is a length, `chunked`, or `close` (until the connection ends)."""

    head: Head
    status: int
    framing: int | str
    is_keep_alive: bool

    @property
    def is_interim(self) -> bool:
        """100, 102, 103: the real response follows."""
        return 100 <= self.status < 200 and self.status != 101


def head_bytes(start: bytes, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A start line and fields as they go over the wire, with the empty line."""
    return b"\r\n".join((start, *map(b": ".join, fields), b"", b""))


def parse_request(raw: bytes) -> RequestHead:
    """Parse a head that ends with its empty line.

    Raises:
        BadMessage: Anything another parser might read in another way.
    """
    request = parse_any_request(raw)
    if request.method == b"CONNECT" or not (request.target.startswith(b"/") or request.target == b"*"):
        raise BadMessage(400, "the request target must be a path")
    return request


def parse_any_request(raw: bytes) -> RequestHead:
    """The same with any form of target, for a proxy that checks that itself.

    Raises:
        BadMessage: Anything another parser might read in another way.
    """
    head = _parse(raw)
    match = _REQUEST_LINE.fullmatch(head.start)
    if match is None:
        raise BadMessage(400, "malformed request line")
    method, _, major, minor = match.groups()
    if major != b"1":
        raise BadMessage(505, "only HTTP/1.1 is spoken here")
    is_http10 = minor == b"0"
    hosts = head.values(b"host")
    if len(hosts) > 1 or (not hosts and not is_http10):
        raise BadMessage(400, "exactly one Host is needed")
    return RequestHead(head, method, is_http10, _request_length(head, is_http10))


def parse_response(raw: bytes, request_method: bytes) -> ResponseHead:
    """Parse the answer of a guest.

    Raises:
        BadMessage: 502, it is no answer that can be passed on.
    """
    try:
        head = _parse(raw)
        match = _STATUS_LINE.fullmatch(head.start)
        if match is None:
            raise BadMessage(502, "malformed status line")
        status = int(match[2])
        framing = _response_framing(head, status, request_method)
    except BadMessage as exc:
        raise BadMessage(502, exc.why) from exc
    is_http10 = match[1] == b"0"
    wants_close = head.has_element(b"connection", b"close")
    is_kept = head.has_element(b"connection", b"keep-alive") if is_http10 else not wants_close
    return ResponseHead(head, status, framing, is_kept and framing != "close")


def _parse(raw: bytes) -> Head:
    lines = raw[:-4].split(b"\r\n")
    if len(lines) > MAX_HEADERS:
        raise BadMessage(431, "too many header fields")
    ends = len(lines) - 1
    if b"\0" in raw or raw.count(b"\r", 0, -4) != ends or raw.count(b"\n", 0, -4) != ends:
        raise BadMessage(400, "a control character in the head")
    return Head(lines[0], tuple(_fields(lines[1:])))


def _fields(lines: Iterable[bytes]) -> Iterable[tuple[bytes, bytes]]:
    for line in lines:
        name, colon, value = line.partition(b":")
        # Folded lines and a blank before the colon are where parsers disagree.
        if not colon or not _TOKEN.fullmatch(name):
            raise BadMessage(400, "malformed header field")
        yield name, value.strip(b" \t")


def _request_length(head: Head, is_http10: bool) -> int | None:
    lengths, codings = head.values(b"content-length"), head.values(b"transfer-encoding")
    if codings:
        if lengths or is_http10 or [coding.lower() for coding in codings] != [b"chunked"]:
            raise BadMessage(400, "ambiguous message framing")
        return None
    return _one_length(lengths) if lengths else 0


def _response_framing(head: Head, status: int, request_method: bytes) -> int | str:
    lengths, codings = head.values(b"content-length"), head.values(b"transfer-encoding")
    if codings and (lengths or [coding.lower() for coding in codings] != [b"chunked"]):
        raise BadMessage(502, "ambiguous message framing")
    length = _one_length(lengths) if lengths else None
    if request_method == b"HEAD" or status < 200 or status in (204, 304):
        return 0
    if codings:
        return "chunked"
    return "close" if length is None else length


def _one_length(values: list[bytes]) -> int:
    if len(values) != 1 or not _LENGTH.fullmatch(values[0]):
        raise BadMessage(400, "ambiguous Content-Length")
    return int(values[0])
