"""What a program in a sandbox asks the proxy for, read so that nobody behind the proxy can read it in another way.

One request a connection: nothing after its body is ever looked at, so there is nothing to smuggle.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, replace

from sbxtui.core.heads import BadMessage, Head, RequestHead, parse_any_request, parse_request
from sbxtui.core.hosts import authority, split_authority

_HTTP_PORT, _TLS_PORT = 80, 443
_ABSOLUTE = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\]*)([/?][^#]*)?")
_JOB = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Between two neighbours only (RFC 9110 §7.6.1), with the old spelling that clients of proxies still send.
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"upgrade",
    )
)
# A client that has one of these dropped between two parsers makes them disagree.
_NEVER_NOMINATED = frozenset((b"content-length", b"host", b"transfer-encoding"))


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to the proxy. `job` is who asks, as the sandbox itself says; `host` is empty for the proxy itself.

    `is_tls`: it was asked inside a tunnel that is opened here.
    """

    request: RequestHead
    host: str
    port: int
    job: str
    path: bytes = b""
    is_tls: bool = False

    @property
    def is_tunnel(self) -> bool:
        """Whether raw bytes follow."""
        return self.request.method == b"CONNECT"

    @property
    def method(self) -> str:
        """In ASCII."""
        return self.request.method.decode("ascii")

    @property
    def default_port(self) -> int:
        """What no port in its address means."""
        return _TLS_PORT if self.is_tls else _HTTP_PORT

    @property
    def is_websocket(self) -> bool:
        """Whether it asks for one, and may: without TLS there is CONNECT for that."""
        return self.is_tls and self.request.is_websocket

    def to_upstream(self) -> RequestHead:
        """The request as the destination gets it: of this hop nothing, and the host that was checked."""
        kept = _without_hops(self.request.head)
        connection = b"close"
        if self.is_websocket:
            connection, kept = b"Upgrade", kept.plus((b"Upgrade", b"websocket"))
        version = b"HTTP/1.0" if self.request.is_http10 else b"HTTP/1.1"
        port = "" if self.port == self.default_port else f":{self.port}"
        host = authority(self.host, self.port).rpartition(":")[0] + port
        head = Head(b" ".join((self.request.method, self.path, version)), ((b"Host", host.encode()), *kept.fields))
        return replace(self.request, head=head.plus((b"Connection", connection)))


def read_request(raw: bytes) -> Asked:
    """Read a head that ends with its empty line.

    Raises:
        BadMessage: 400 for whatever is not plainly one request for one place.
    """
    request = parse_any_request(raw)
    job = _job_of(request)
    _check_nominated(request)
    if request.method == b"CONNECT":
        host, port = _place(request.target, default_port=0)
        if request.length != 0:
            raise BadMessage(400, "CONNECT has no body")
        _check_host_field(request, host, port)
        return Asked(request, host, port, job)
    if request.target.startswith(b"/"):
        return Asked(request, "", 0, job, request.target)
    match = _ABSOLUTE.fullmatch(request.target)
    if match is None:
        raise BadMessage(400, "a proxy is asked for http://HOST/PATH, or by CONNECT HOST:PORT")
    if match[1].lower() != b"http":
        raise BadMessage(400, "only http:// is fetched here; other protocols go through CONNECT")
    host, port = _place(match[2], default_port=_HTTP_PORT)
    _check_host_field(request, host, port)
    rest = match[3] or b"/"
    return Asked(request, host, port, job, rest if rest.startswith(b"/") else b"/" + rest)


def read_opened(raw: bytes, asked: Asked) -> Asked:
    """Read a head from inside a tunnel that is opened here.

    Raises:
        BadMessage: 400 for whatever is not plainly one request, 421 for one to another host.
    """
    request = parse_request(raw)
    _check_nominated(request)
    opened = Asked(request, asked.host, asked.port, asked.job, request.target, is_tls=True)
    for value in request.head.values(b"host"):
        if _place(value, default_port=_TLS_PORT) != (asked.host, asked.port):
            raise BadMessage(421, f"this connection leads to {asked.host}, and the request names another host")
    return opened


def answer_head(head: Head) -> Head:
    """An answer's head as the program in the sandbox gets it: the connection ends with it."""
    return _without_hops(head).plus((b"Connection", b"close"))


def _without_hops(head: Head) -> Head:
    dropped = _HOP_BY_HOP | (_nominated(head) - _NEVER_NOMINATED)
    return head.without(lambda name: name in dropped or name == b"host")


def _nominated(head: Head) -> frozenset[bytes]:
    return frozenset(element.lower() for element in head.elements(b"connection"))


def _check_nominated(request: RequestHead) -> None:
    if any(name in _NEVER_NOMINATED for name in _nominated(request.head)):
        raise BadMessage(400, "Connection names a field that must not be dropped")


def _place(raw: bytes, *, default_port: int) -> tuple[str, int]:
    try:
        return split_authority(raw.decode("ascii"), default_port=default_port)
    except ValueError as exc:
        raise BadMessage(400, "malformed destination" if isinstance(exc, UnicodeDecodeError) else str(exc)) from exc


def _check_host_field(request: RequestHead, host: str, port: int) -> None:
    """Two names for one request are somebody's trick: the field must say what the target says."""
    for value in request.head.values(b"host"):
        if _place(value, default_port=port if request.method == b"CONNECT" else _HTTP_PORT) != (host, port):
            raise BadMessage(400, "Host and the request target name different places")


def _job_of(request: RequestHead) -> str:
    """The job id that jobs are given as the user name of their proxy; empty for anything else."""
    for value in request.head.values(b"proxy-authorization"):
        scheme, _, token = value.partition(b" ")
        if scheme.lower() != b"basic":
            continue
        try:
            name = base64.b64decode(token.strip(), validate=True).decode("ascii").partition(":")[0]
        except (binascii.Error, UnicodeDecodeError):
            continue
        if _JOB.fullmatch(name):
            return name
    return ""
