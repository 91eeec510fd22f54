"""What may pass from a web page to a port on loopback. Pure: bytes in, a verdict out.

Every page of the web can make a browser connect to this machine's loopback ports, and may say that a name of its own
leads there. So each request must name this machine as its host, and one that a foreign site caused may change nothing.
What is no HTTP/1 and no TLS passes: no browser speaks it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from sbxtui.core.heads import MAX_HEAD_BYTES, BadMessage, RequestHead, parse_any_request
from sbxtui.core.hosts import as_address, normal_host, split_authority

# A page names the method of a request, in any letters and of any length.
_TOKEN = rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_METHOD = re.compile(_TOKEN)
_USUAL_METHOD = re.compile(rb"[A-Z]{1,32}")
_REQUEST_LINE = re.compile(_TOKEN + rb" [^ \r\n]+ HTTP/1\.[0-9]\r?")
_MAX_LINE_BYTES = 16 * 1024
_SAFE_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_TLS_HANDSHAKE = 0x16
_TLS_HELLO = bytes([_TLS_HANDSHAKE])
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection is closed before the sandbox has a byte of it; `status` is 0 where no HTTP is spoken."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class Passed:
    """What passes.

    Attributes:
        head_bytes: Of a request's head, or of empty lines before one; 0 for what is no HTTP.
        body: What follows it, as `framing_of` takes it; `close` is all that ever comes.
        request: None for what is none.
    """

    head_bytes: int
    body: int | str | None
    request: RequestHead | None = None

    @property
    def is_blank(self) -> bool:
        """Whether it is nothing but empty lines: what follows them begins anew."""
        return self.request is None and self.head_bytes > 0


_RAW = Passed(0, "close")


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one forward.

    Attributes:
        hosts: More names that stand for this machine.
        origins: Origins (`https://example.org`) whose pages may change things, too.
        has_any_address: It listens on all addresses of this machine: any stands for it. A name can be made to lead
            here by whoever owns it, an address cannot.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    has_any_address: bool = False

    def judge(self, data: bytes, *, is_first: bool = True) -> Refusal | Passed | None:
        """What to do with what a client sent.

        Args:
            data: From where a request begins.
            is_first: Whether the connection begins here, too: then it may be no HTTP.

        Returns:
            None: Wait for more.
        """
        if is_first and data[:1] == _TLS_HELLO:
            return self._judge_tls(data)
        if blank := _blank_bytes(data, is_first=is_first):
            return Passed(blank, 0)
        if data == b"\r":
            return None
        line, newline, _ = data.partition(b"\n")
        if not newline:
            return _RAW if is_first and data and not _may_become_http(line) else _too_long(data)
        if not _REQUEST_LINE.fullmatch(line):
            return _RAW if is_first else Refusal(400, "what follows a request is none")
        if not line.endswith(b"\r"):
            return Refusal(400, "a bare line feed in the head")
        end = data.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD_BYTES:
            return _too_long(data)
        try:
            request = parse_any_request(data[: end + 4])
        except BadMessage as exc:
            return Refusal(exc.status, exc.why)
        # After an upgrade it is no HTTP any more. A server that does not take it has a client that is no browser.
        passed = Passed(end + 4, "close" if request.wants_upgrade else request.length, request)
        return self._judge_request(request) or passed

    def is_request(self, data: bytes) -> bool:
        """Whether what began a connection is of HTTP."""
        return bool(_REQUEST_LINE.match(data))

    def _judge_request(self, request: RequestHead) -> Refusal | None:
        hosts = request.head.values(b"host")
        # A request without Host is one of HTTP/1.0, which no browser sends.
        if hosts and not self._is_own(hosts[0].decode("latin-1")):
            return Refusal(421, "the request names another host; `--host NAME` lets one pass")
        target = request.target.decode("latin-1")
        if not target.startswith("/") and target != "*" and not self._is_own(urlsplit(target).netloc):
            return Refusal(421, "the request is for another host")
        if request.method == b"CONNECT":
            return Refusal(400, "this is no proxy")
        is_foreign = request.head.has_element(b"sec-fetch-site", b"cross-site")
        # To an address they do not trust, as `--bind` opens one, browsers tell the origin and not the site.
        may_be_foreign = is_foreign or not request.head.values(b"sec-fetch-site")
        if request.wants_upgrade or (may_be_foreign and request.method not in _SAFE_METHODS):
            return self._judge_origin(request, must_tell=is_foreign)
        return None

    def _judge_origin(self, request: RequestHead, *, must_tell: bool) -> Refusal | None:
        origins = [value.decode("latin-1") for value in request.head.values(b"origin")]
        hosts = {_host_of(value.decode("latin-1")) for value in request.head.values(b"host")}
        are_trusted = all(self._is_trusted(origin) or _host_of(urlsplit(origin).netloc) in hosts for origin in origins)
        if are_trusted and (origins or not must_tell):
            return None
        return Refusal(403, "a page of another site caused this request; `--allow-origin ORIGIN` lets it pass")

    def _is_trusted(self, origin: str) -> bool:
        host = _host_of(urlsplit(origin).netloc)
        return origin in self.origins or is_loopback_name(host) or host in self.hosts

    def _is_own(self, authority: str) -> bool:
        """Whether an authority names this machine."""
        host = _host_of(authority)
        is_address = self.has_any_address and bool(host) and as_address(host) is not None
        return is_loopback_name(host) or host in self.hosts or is_address

    def _judge_tls(self, data: bytes) -> Refusal | Passed | None:
        try:
            name = _server_name(data)
        except IndexError:
            return Refusal(0, "a TLS hello without end") if len(data) > MAX_HEAD_BYTES else None
        except ValueError as exc:
            return Refusal(0, str(exc))
        if not name or self._is_own(name):
            return _RAW
        return Refusal(0, "TLS for another host; `--host NAME` lets one pass")


class Doorkeeper:
    """A gate of one connection that knows again whom it let through last: clients that poll say the same each time."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._head = b""
        self._passed: Passed | None = None

    def judge(self, data: bytes, *, is_first: bool) -> Refusal | Passed | None:
        """As `Gate.judge`."""
        if self._passed is not None and data.startswith(self._head):
            return self._passed
        verdict = self._gate.judge(data, is_first=is_first)
        if isinstance(verdict, Passed) and verdict.request is not None:
            self._head, self._passed = data[: verdict.head_bytes], verdict
        return verdict


def gate_for(hosts: Collection[str], origins: Collection[str], *, has_any_address: bool = False) -> Gate:
    """The gate with what a person lets pass besides this machine; see `Gate`.

    Raises:
        ValueError: One is no host name, or no origin; the message says which.
    """
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or f"{parts.scheme}://{parts.netloc}" != origin:
            raise ValueError(f"`{origin[:80]}` is no origin, as in https://example.org")
    return Gate(frozenset(normal_host(host) for host in hosts), frozenset(origins), has_any_address)


def is_loopback_name(host: str) -> bool:
    """Whether a normal host is this machine by its own meaning."""
    return host in _LOOPBACK_NAMES or host.endswith(".localhost")


def _host_of(authority: str) -> str:
    """The normal host of an authority, empty if it is none; its port is nobody's business."""
    try:
        return split_authority(authority, default_port=80)[0]
    except ValueError:
        return ""


def _blank_bytes(data: bytes, *, is_first: bool) -> int:
    """How many bytes of empty lines it begins with. Servers pass over those before a request.

    At the beginning of a connection, line ends are also what somebody types into a server that speaks no HTTP and
    answers each: half of one must not wait for its rest.
    """
    if is_first:
        return len(data) - len(data.lstrip(b"\r\n"))
    at = 0
    while data.startswith(b"\r\n", at):
        at += 2
    return at


def _too_long(data: bytes) -> Refusal | None:
    return Refusal(431, "the head is too long") if len(data) > MAX_HEAD_BYTES else None


def _may_become_http(line: bytes) -> bool:
    """Whether an unfinished first line may still become a request's.

    What a browser sends first goes beyond the method; half a word of another protocol must not wait for its rest.
    """
    method, _blank, target = line.partition(b" ")
    if target.startswith(b"/"):
        return bool(_METHOD.fullmatch(method))
    return len(line) <= _MAX_LINE_BYTES and (not line or bool(_USUAL_METHOD.fullmatch(method)))


def _server_name(data: bytes) -> str:
    """The host a TLS hello asks for, empty if it names none.

    Raises:
        IndexError: More of it has to come. ValueError: It is none.
    """
    hello = _Bytes(_handshake(data))
    if hello.number(1) != 1:
        raise ValueError("no TLS hello")
    hello = _Bytes(hello.take(hello.number(3)))
    hello.take(2 + 32)
    for width in (1, 2, 1):
        hello.take(hello.number(width))
    if hello.is_empty:
        return ""
    extensions = _Bytes(hello.take(hello.number(2)))
    while not extensions.is_empty:
        kind, body = extensions.number(2), _Bytes(extensions.take(extensions.number(2)))
        if kind == 0:
            names = _Bytes(body.take(body.number(2)))
            names.take(1)
            return names.take(names.number(2)).decode("latin-1")
    return ""


def _handshake(data: bytes) -> bytes:
    """What the records of a beginning TLS connection carry, as far as they are here."""
    carried, records = b"", _Bytes(data)
    while not records.is_empty:
        if records.number(1) != _TLS_HANDSHAKE:
            raise ValueError("no TLS handshake")
        records.take(2)
        size = records.number(2)
        carried += records.take(size)
        if len(carried) >= 4 and len(carried) >= 4 + int.from_bytes(carried[1:4], "big"):
            break
    return carried


class _Bytes:
    """Bytes read from the front; IndexError when they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at >= len(self._data)

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise IndexError
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")
