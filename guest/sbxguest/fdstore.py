"""What init keeps so that a server that was killed comes back with everything: descriptors, pids, exit codes."""

from __future__ import annotations

import errno
import signal
from typing import Any

from sbxguest import descriptors
from sbxguest.link import Link

# What the server needs of a job for as long as it runs; the other ends belong to the job alone.
KEPT = ("log", "in_w", "out_r", "err_r", "pty", "relay_r", "relay_w", "side")


class Entry:
    """One job: its kept descriptors and what its shim has told."""

    __slots__ = ("code", "failure", "fds", "is_empty", "key", "pid", "shim")

    def __init__(self, key: str, fds: dict[str, int]) -> None:
        self.key = key
        self.fds = fds
        self.pid = 0
        self.code: int | None = None
        self.failure: tuple[str, int] | None = None
        self.is_empty = False
        self.shim: Link | None = None

    def messages(self) -> list[dict[str, Any]]:
        """All that happened so far, as the server would have been told it."""
        told: list[dict[str, Any]] = []
        if self.pid:
            told.append({"op": "started", "job": self.key, "pid": self.pid})
        if self.failure is not None:
            told.append({"op": "failed", "job": self.key, "stage": self.failure[0], "errno": self.failure[1]})
        if self.code is not None:
            told.append({"op": "exit", "job": self.key, "code": self.code})
        if self.is_empty:
            told.append({"op": "empty", "job": self.key})
        return told


class FdStore:
    """Jobs by key, and named descriptors of the server's own (its state)."""

    def __init__(self) -> None:
        self.jobs: dict[str, Entry] = {}
        self._named: dict[str, int] = {}

    def add(self, key: str, fds: dict[str, int]) -> Entry:
        """Keep a job. A key that is known already is replaced."""
        self.drop(key, ())
        entry = Entry(key, fds)
        self.jobs[key] = entry
        return entry

    def put(self, name: str, fd: int) -> None:
        """Keep a descriptor under a name, in place of an older one."""
        old = self._named.pop(name, None)
        if old is not None:
            descriptors.close_all((old,))
        self._named[name] = fd

    def unput(self, name: str) -> None:
        """Close a named descriptor; nothing happens if there is none."""
        if name in self._named:
            descriptors.close_all((self._named.pop(name),))

    def drop(self, key: str, names: list[str] | tuple[()]) -> None:
        """Close some of a job's descriptors; with no names, forget the job (its shim lives until it is empty)."""
        entry = self.jobs.get(key)
        if entry is None:
            return
        descriptors.close_all(entry.fds.pop(name) for name in (names or list(entry.fds)) if name in entry.fds)
        if not names:
            del self.jobs[key]

    def replay(self, server: Link) -> None:
        """Tell a server that has just started everything."""
        for name, fd in self._named.items():
            server.post({"op": "put", "name": name}, (fd,))
        for entry in self.jobs.values():
            server.post({"op": "job", "job": entry.key, "fds": list(entry.fds)}, list(entry.fds.values()))
            for message in entry.messages():
                server.post(message)
        server.post({"op": "synced"})

    def note(self, entry: Entry, message: dict[str, Any]) -> dict[str, Any]:
        """Take over what a shim told; returns it as the server is to hear it."""
        match message["op"]:
            case "empty":
                entry.is_empty = True
            case "started":
                entry.pid = int(message["pid"])
            case "failed":
                entry.failure = (str(message["stage"]), int(message["errno"]))
            case "exit":
                entry.code = int(message["code"])
        return {**message, "job": entry.key}

    def note_loss(self, entry: Entry) -> list[dict[str, Any]]:
        """The job's shim was killed: what is not known of the job by now is never told by anyone."""
        told: list[dict[str, Any]] = []
        if not entry.pid and entry.failure is None:
            told.append(self.note(entry, {"op": "failed", "stage": "spawn", "errno": errno.EAGAIN}))
        if entry.pid and entry.code is None:
            told.append(self.note(entry, {"op": "exit", "code": -signal.SIGKILL}))
        told.append(self.note(entry, {"op": "empty"}))
        return told
