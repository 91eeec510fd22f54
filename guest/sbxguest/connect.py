#!/usr/bin/env -S python3 -I
"""`sbx-connect`: a connection through the sandbox's proxy, for programs that know no proxy. Stands by itself.

sbx-connect HOST PORT                 stdin and stdout are the connection, as ssh's ProxyCommand wants it
sbx-connect HOST PORT --listen LOCAL  every connection to 127.0.0.1:LOCAL is one to HOST:PORT
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

_CHUNK_BYTES = 65_536
_HEAD_BYTES = 65_536
_USUAL_PROXY = "http://127.0.0.1:3128"


class Refused(Exception):
    """The proxy did not connect; its words."""


def main() -> int:
    """0 at the connection's end, 1 with a line on stderr when there was none."""
    parser = argparse.ArgumentParser(
        prog="sbx-connect", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("host", metavar="HOST")
    parser.add_argument("port", metavar="PORT", type=int)
    parser.add_argument("--listen", metavar="LOCAL", type=int, default=0)
    args = parser.parse_args()
    place = f"[{args.host}]:{args.port}" if ":" in args.host else f"{args.host}:{args.port}"
    proxy = os.environ.get("HTTPS_PROXY") or _USUAL_PROXY
    try:
        if args.listen:
            return _listen(proxy, place, args.listen)
        with connected(proxy, place) as way:
            _pump(lambda: os.read(0, _CHUNK_BYTES), way, lambda data: _write_all(1, data))
    except (OSError, Refused) as exc:
        sys.stderr.write(f"sbx-connect: {exc}\n")
        return 1
    return 0


def connected(proxy: str, place: str) -> socket.socket:
    """A connection to `HOST:PORT` through a proxy.

    Raises:
        Refused: The proxy says no, in its own words.
        OSError: It is not there.
    """
    parts = urlsplit(proxy)
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if parts.username:
        # The job that asks, for the log of what the sandbox asked for.
        told = base64.b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {told}")
    way = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80))
    way.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    # Byte by byte: what follows the head is the other side's.
    while not head.endswith(b"\r\n\r\n") and len(head) < _HEAD_BYTES:
        byte = way.recv(1)
        if not byte:
            break
        head += byte
    status = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")[2]
    if not status.startswith("200"):
        way.close()
        raise Refused(status or "the proxy hung up")
    return way


def _listen(proxy: str, place: str, port: int) -> int:
    with socket.create_server(("127.0.0.1", port)) as server:
        sys.stderr.write(f"sbx-connect: 127.0.0.1:{server.getsockname()[1]} is {place}\n")
        sys.stderr.flush()
        while True:
            program, _ = server.accept()
            threading.Thread(target=_serve, args=(proxy, place, program), daemon=True).start()


def _serve(proxy: str, place: str, program: socket.socket) -> None:
    with program:
        try:
            way = connected(proxy, place)
        except (OSError, Refused) as exc:
            sys.stderr.write(f"sbx-connect: {exc}\n")
            return
        with way:
            _pump(lambda: program.recv(_CHUNK_BYTES), way, program.sendall)
            with contextlib.suppress(OSError):
                program.shutdown(socket.SHUT_RDWR)


def _pump(read: Callable[[], bytes], way: socket.socket, write: Callable[[bytes], object]) -> None:
    """Both directions, until the far side has ended; the near side's end is passed on."""
    threading.Thread(target=_outward, args=(read, way), daemon=True).start()
    while data := way.recv(_CHUNK_BYTES):
        write(data)


def _outward(read: Callable[[], bytes], way: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := read():
            way.sendall(data)
        way.shutdown(socket.SHUT_WR)


def _write_all(number: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(number, left) :]


if __name__ == "__main__":
    sys.exit(main())
