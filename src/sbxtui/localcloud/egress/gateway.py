"""One sandbox's way out: connections parked at its bridge, each serving one program when it is taken.

The host dials in and never the sandbox out: a connection belongs to the sandbox whose bridge took it, and a sandbox
holds no socket of the host.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Protocol

from sbxtui.core.egress import NetworkPolicy
from sbxtui.core.errors import GuestUnreachable
from sbxtui.core.model import SandboxState
from sbxtui.localcloud.duplex import abort
from sbxtui.localcloud.egress.asking import Asked
from sbxtui.localcloud.egress.conversation import Conversation, Ways
from sbxtui.localcloud.egress.dialing import Streams
from sbxtui.localcloud.egress.log import NetworkLog
from sbxtui.localcloud.egress.secrets import SecretBook
from sbxtui.localcloud.keeper_client import dial_bridge

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
_PARKED = 4
_PARK_WORD = "out"
_TAKEN = b"c"
_STARTING_PAUSE_S = 0.05
_PAUSE_S = 1.0
_LONG_PAUSE_S = 5.0


class Life(Protocol):
    """What a gateway follows of its sandbox."""

    @property
    def state(self) -> SandboxState:
        """Now; connections are parked while it is RUNNING."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        ...


class Gateway:
    """The way out of one sandbox. `has_bridge` is None until its bridge was asked whether it has a way out at all."""

    def __init__(
        self,
        sandbox_id: str,
        control_dir: Path,
        policy: NetworkPolicy,
        network_log: NetworkLog,
        secrets: SecretBook | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.secrets = secrets or SecretBook()
        self.policy = policy
        self.log = network_log
        self.has_bridge: bool | None = None
        self._control_dir = control_dir
        self._open: set[Conversation] = set()
        self._parked = 0
        self._changed = asyncio.Event()

    @property
    def open_count(self) -> int:
        """Connections that serve a program now."""
        return len(self._open)

    def apply(self, policy: NetworkPolicy) -> int:
        """Have a policy hold from now on; ends what it no longer allows and returns how many that were."""
        self.policy = policy
        gone = [one for one in self._open if not _is_allowed(one.asked, policy)]
        for one in gone:
            one.cut()
        return len(gone)

    async def serve(self, life: Life, ways: Ways) -> None:
        """Keep connections parked and serve what is taken, until the sandbox has ended; then nothing is left open."""
        async with asyncio.TaskGroup() as group:
            tasks: set[asyncio.Task[None]] = set()
            while not life.is_over:
                self._changed.clear()
                pause_s = self._pause_s(life)
                if not pause_s:
                    streams = await self._park()
                    if streams is not None:
                        task = group.create_task(self._keep(streams, ways))
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)
                        continue
                    pause_s = _LONG_PAUSE_S if self.has_bridge is False else _PAUSE_S
                try:
                    async with asyncio.timeout(pause_s):
                        await self._changed.wait()
                except TimeoutError:
                    continue
            for task in tasks:
                task.cancel()

    def _pause_s(self, life: Life) -> float:
        """How long there is nothing to do; 0: another connection is to be parked."""
        if life.state is SandboxState.PENDING:
            return _STARTING_PAUSE_S
        if life.state is not SandboxState.RUNNING or self._parked >= _PARKED:
            return _PAUSE_S
        return _PAUSE_S if len(self._open) + self._parked >= MAX_CONNECTIONS else 0.0

    async def _park(self) -> Streams | None:
        try:
            streams = await (await dial_bridge(self._control_dir, _PARK_WORD)).streams()
        except ConnectionRefusedError:
            # The image of an older sbx, or a program in the sandbox that took the port.
            self.has_bridge = False
            return None
        except GuestUnreachable:
            return None
        self.has_bridge = True
        self._parked += 1
        return streams

    async def _keep(self, streams: Streams, ways: Ways) -> None:
        """One parked connection until it ends."""
        is_taken = False
        try:
            is_taken = await self._is_taken(streams)
            if not (is_taken and await self._has_asked(Conversation(self, ways, streams))):
                # A bridge that drops all it is given, or takes it for nothing, must not make this process spin: the
                # place stays taken for a while.
                await asyncio.sleep(_PAUSE_S)
        except Exception:
            log.exception("a connection out of %s broke", self.sandbox_id)
        finally:
            self._parked -= 1
            streams[1].close() if is_taken else abort(streams[1].transport)
            self._changed.set()

    async def _is_taken(self, streams: Streams) -> bool:
        try:
            return await streams[0].read(1) == _TAKEN
        except OSError:
            return False

    async def _has_asked(self, conversation: Conversation) -> bool:
        """Serve a taken connection, while its place is another's; whether it asked for something."""
        self._parked -= 1
        self._changed.set()
        self._open.add(conversation)
        try:
            await conversation.serve()
        finally:
            self._open.discard(conversation)
            self._parked += 1
        return conversation.asked is not None


def _is_allowed(asked: Asked | None, policy: NetworkPolicy) -> bool:
    # What asked for nothing yet is checked when it does.
    return asked is None or not asked.host or policy.allows(asked.host, asked.port)
