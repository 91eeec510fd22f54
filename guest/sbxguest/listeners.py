"""Listening sockets of the bridge, and how many descriptors it may have."""

from __future__ import annotations

import logging
import os
import resource
import socket
from pathlib import Path

log = logging.getLogger("sbxguest.bridge")


def listen_at(path: Path) -> socket.socket:
    """A listening unix socket at `path`, put there only once it listens; replaces what was there.

    Raises:
        OSError: The folder cannot be written or the path is too long.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old_umask = os.umask(0o177)
    try:
        temporary.unlink(missing_ok=True)
        listener.bind(os.fspath(temporary))
        listener.listen(1024)
        temporary.replace(path)
    except OSError:
        listener.close()
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.umask(old_umask)
    listener.setblocking(False)
    return listener


def raise_fd_limit() -> int:
    """Lift the soft limit on descriptors to the hard one (at most 65,536) and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def listen_on(port: int) -> socket.socket | None:
    """A listener on a loopback port, or None if something in the sandbox has it already."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as exc:
        log.warning("no way out: port %d: %s", port, exc)
        listener.close()
        return None
    listener.setblocking(False)
    return listener
