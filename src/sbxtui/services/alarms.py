"""Telling people of trouble as it comes: events in words, and the hook command of `config.toml`, run once for each.

A hook is run by whichever face hears of an event first; it finds the event as JSON on its standard input. How it ends
is its own affair.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing

from sbxtui.core.model import Event
from sbxtui.core.text import iso
from sbxtui.core.troubles import trouble_words
from sbxtui.home import Home, private_dir
from sbxtui.services.activity import follow_events
from sbxtui.services.lookout import Lookout
from sbxtui.services.sync.beside import beside
from sbxtui.store.doorbell import IDLE_POLL_S
from sbxtui.store.events import Events

log = logging.getLogger(__name__)


class Alarms:
    """Trouble of one home. `hook` is a shell line; empty for none. Without `lookout`, nobody looks for any here."""

    def __init__(self, home: Home, events: Events, hook: str, lookout: Lookout | None = None) -> None:
        self._home = home
        self._events = events
        self._hook = hook
        self._lookout = lookout

    def looking(self) -> AbstractAsyncContextManager[None]:
        """Look for trouble beside a block: much of it comes to light only where somebody looks."""
        return beside() if self._lookout is None else beside(self._lookout.keep())

    async def follow(self, after_seq: int | None = None) -> AsyncGenerator[tuple[Event, str], None]:
        """Each event after one, or from now on, that is trouble, with its words; ends only when closed."""
        newest = await asyncio.to_thread(self._events.latest_seq) if after_seq is None else after_seq
        # A bell tells of an event at once; without bells, a second later is soon enough.
        batches = follow_events(self._home, self._events, after_seq=newest, poll_s=IDLE_POLL_S)
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    if words := trouble_words(event):
                        await self.ring(event, words)
                        yield event, words

    async def ring(self, event: Event, words: str) -> None:
        """Run the hook for an event, unless another face did."""
        if not self._hook:
            return
        if await asyncio.to_thread(self._is_ours, event.seq):
            await asyncio.to_thread(self._run, event, words)

    def _is_ours(self, seq: int) -> bool:
        """Take an event; numbers only grow, so the last one taken says it all."""
        private_dir(self._home.state_dir)
        handle = os.open(self._home.state_dir / "hook.seq", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            last = file.read().strip()
            if last.isdecimal() and int(last) >= seq:
                return False
            file.seek(0)
            file.truncate()
            file.write(str(seq))
            return True

    def _run(self, event: Event, words: str) -> None:
        told = {"seq": event.seq, "at": iso(event.at), "context": event.context, "kind": event.kind}
        told |= {"subject": event.subject, "data": dict(event.data), "words": words}
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._hook],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as exc:
            log.warning("the hook cannot be run: %s", exc)
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin:
            process.stdin.write(json.dumps(told).encode() + b"\n")
