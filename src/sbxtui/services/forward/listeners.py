"""Listening on this machine for forwards: all of them or none, and who has a port that is taken."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sbxguest.listening import listening
from sbxtui.core.errors import AccessDenied, AddressInUse, SbxError
from sbxtui.core.hosts import as_address
from sbxtui.core.text import harmless_line
from sbxtui.services.forward.model import LOOPBACK, ForwardSpec

_BACKLOG = 512
_TRIES = 100
_MAX_PORT = 65_535
_NO_SUCH_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True)
class Bound:
    """A forward with the sockets that listen for it; `spec` has the port they got."""

    spec: ForwardSpec
    sockets: tuple[socket.socket, ...]

    def close(self) -> None:
        """Stop listening."""
        for sock in self.sockets:
            sock.close()


def bind_all(specs: Sequence[ForwardSpec], *, any_port: bool = False) -> list[Bound]:
    """Listen for every forward, on both loopback addresses where there are two.

    Args:
        specs: A local port of 0 stands for any.
        any_port: Take the next free port for one that is taken.

    Raises:
        AddressInUse: A port is taken; nothing listens then. AccessDenied: It is not ours to take.
    """
    bound: list[Bound] = []
    try:
        for spec in specs:
            bound.append(_bind(spec, any_port=any_port))
    except BaseException:
        for one in bound:
            one.close()
        raise
    return bound


def _bind(spec: ForwardSpec, *, any_port: bool) -> Bound:
    # Of a free port on one address the other may be taken: then another one is tried.
    tries = _TRIES if any_port or not spec.local_port else 1
    for step in range(tries):
        port = spec.local_port + step if spec.local_port else 0
        if port > _MAX_PORT:
            break
        try:
            sockets = _listen(spec.bind, port)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE and step + 1 < tries:
                continue
            raise _refused(spec, port, exc) from exc
        return Bound(replace(spec, local_port=sockets[0].getsockname()[1]), tuple(sockets))
    raise AddressInUse(f"no free port from {spec.local_port} on", hint="name another local port")


def _listen(bind: str, port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        for address in (bind,) if bind else LOOPBACK:
            try:
                sock = _socket(address, port)
            except OSError as exc:
                # A machine without IPv6 has one loopback address.
                if sockets and exc.errno in _NO_SUCH_FAMILY:
                    continue
                raise
            undo.callback(sock.close)
            sockets.append(sock)
            port = sock.getsockname()[1]
        undo.pop_all()
    return sockets


def _socket(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections that ended a moment ago do not hold the port; another listener still does.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _refused(spec: ForwardSpec, port: int, exc: OSError) -> SbxError:
    if exc.errno == errno.EADDRINUSE:
        holder = _holder(port)
        return AddressInUse(
            f"port {port} of this machine is taken{f' by {holder}' if holder else ''}",
            hint=f"name another, as in {port + 1}:{spec.remote_port}, or let --any-port find one",
            details={"port": port, "holder": holder},
        )
    if exc.errno in (errno.EACCES, errno.EPERM):
        hint = f"name one from 1024 on, as in {8000 + port}:{spec.remote_port}"
        return AccessDenied(f"port {port} of this machine is not ours to take", hint=hint)
    hint = "--bind takes an address of this machine" if spec.bind and as_address(spec.bind) else ""
    return SbxError(f"cannot listen on {spec.bind or 'loopback'}:{port}: {exc.strerror or exc}", hint=hint)


def _holder(port: int) -> str:
    """Who listens there, in words; empty when the system does not say."""
    held = [one for one in listening() if one.port == port]
    known = next((one for one in held if one.pid), None)
    return f"{harmless_line(known.process)} (pid {known.pid})" if known is not None else ""
