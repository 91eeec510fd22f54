"""The server's side of its link to init: asks for spawns and signals, hears what became of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sbxguest import descriptors
from sbxguest.link import Link

_SYNC_TIMEOUT_MS = 10_000


@dataclass(slots=True)
class Kept:
    """What init had: the guest's settings, named descriptors, each job's, and what happened to jobs, in order."""

    env: dict[str, str] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, dict[str, int]] = field(default_factory=dict)
    told: list[dict[str, Any]] = field(default_factory=list)


class InitClient:
    """Owns the link. `on_message` is called for each message about a job, `on_lost` when init is gone."""

    def __init__(self, fd: int) -> None:
        self._link = Link(socket.socket(fileno=fd))
        self._drops: list[tuple[str, tuple[str, ...]]] = []
        self.on_message: Callable[[str, dict[str, Any]], None] = _ignore
        self.on_lost: Callable[[], None] = _nothing

    def sync(self) -> Kept:
        """Before the loop runs: take what init kept.

        Raises:
            TimeoutError: Init said nothing.
        """
        kept = Kept()
        poll = select.poll()
        poll.register(self._link.sock, select.POLLIN)
        while poll.poll(_SYNC_TIMEOUT_MS) and not self._link.is_closed:
            for message, fds in self._link.receive():
                if len(fds) < len(message.get("fds", ())) + (message["op"] == "put"):
                    # More than this process may open: better to serve without that job than not at all.
                    descriptors.close_all(fds)
                    continue
                match message["op"]:
                    case "settings":
                        kept.env = message["env"]
                    case "put":
                        kept.named[message["name"]] = fds[0]
                    case "job":
                        kept.jobs[message["job"]] = dict(zip(message["fds"], fds, strict=True))
                    case "synced":
                        return kept
                    case _:
                        kept.told.append(message)
        raise TimeoutError("init did not answer")

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen from now on."""
        loop.add_reader(self._link.sock, self._on_readable, loop)

    def spawn(self, key: str, fds: dict[str, int]) -> None:
        """Have init keep a job's descriptors and start it; `spec` and the job's ends of the pipes may be closed now."""
        self._post({"op": "spawn", "job": key, "fds": list(fds)}, list(fds.values()))

    def signal(self, key: str, number: int, to: str) -> None:
        """Signal a job's leader, group or tree."""
        self._post({"op": "signal", "job": key, "sig": number, "to": to})

    def drop(self, key: str, *names: str) -> None:
        """Have init close some of a job's descriptors, or, with no names, forget the job.

        Said together with what else is dropped in this turn of the loop: each message wakes init.
        """
        self._drops.append((key, names))
        if len(self._drops) > 1:
            return
        try:
            asyncio.get_running_loop().call_soon(self._flush_drops)
        except RuntimeError:
            self._flush_drops()

    def put(self, name: str, data: bytes) -> None:
        """Have init keep `data` under a name."""
        fd = descriptors.memfd_of(f"sbx-{name}", data)
        try:
            self._post({"op": "put", "name": name}, [fd])
        finally:
            os.close(fd)

    def keep(self, name: str, fd: int) -> None:
        """Have init keep a descriptor under a name."""
        self._post({"op": "put", "name": name}, [fd])

    def unput(self, name: str) -> None:
        """Have init forget what it keeps under a name."""
        self._post({"op": "unput", "name": name})

    def _flush_drops(self) -> None:
        drops, self._drops = self._drops, []
        if drops:
            self._send({"op": "drop", "drops": drops})

    def _post(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        # In order: an id that was given up may be taken again at once.
        self._flush_drops()
        self._send(message, fds)

    def _send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        # Duplicates, because the message may have to wait while the caller closes its own.
        copies = [os.dup(fd) for fd in fds or ()]
        self._link.post(message, copies, closes_fds=True)
        if self._link.has_pending:
            with contextlib.suppress(RuntimeError):
                loop = asyncio.get_running_loop()
                loop.add_writer(self._link.sock, self._on_writable, loop)

    def _on_writable(self, loop: asyncio.AbstractEventLoop) -> None:
        self._link.flush()
        if not self._link.has_pending:
            loop.remove_writer(self._link.sock)

    def _on_readable(self, loop: asyncio.AbstractEventLoop) -> None:
        for message, fds in self._link.receive():
            descriptors.close_all(fds)
            self.on_message(str(message.get("job", "")), message)
        if self._link.is_closed:
            loop.remove_reader(self._link.sock)
            loop.remove_writer(self._link.sock)
            self.on_lost()


def _ignore(_key: str, _message: dict[str, Any]) -> None:
    """Nobody listens yet."""


def _nothing() -> None:
    """Nobody listens yet."""
