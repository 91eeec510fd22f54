"""One call of a tool: its arguments, the services it may use, and how it talks back while it works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sbxtui.core.errors import ConfirmationMissing
from sbxtui.core.model import Registration
from sbxtui.core.text import harmless_line
from sbxtui.mcp_server.endings import Endings
from sbxtui.mcp_server.hostpaths import HostPaths
from sbxtui.mcp_server.params import Args
from sbxtui.settings import Settings
from sbxtui.wiring import Services

_PROGRESS_WIDTH = 200


class Client(Protocol):
    """Who calls."""

    @property
    def takes_tasks(self) -> bool:
        """Whether it knows what a task is."""

    async def progress(self, step: int, words: str) -> None:
        """Say what is being done; nothing where nobody asked for it."""

    async def ask(self, question: str) -> bool | None:
        """Let the person behind the client decide; None where the client cannot ask."""


@dataclass(slots=True)
class Call:
    """What a tool gets.

    Attributes:
        follow: Starts something that may outlive the call, and is cut when this server ends.
        later: Starts something that this server waits for before it ends; nobody asks what came of it.
        endings: Who waits until somebody was told how a command ended.
    """

    args: Args
    services: Services
    host_paths: HostPaths
    client: Client
    follow: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
    later: Callable[[Coroutine[Any, Any, object]], None]
    endings: Endings
    warnings: list[str] = field(default_factory=list)
    _steps: int = 0

    @property
    def settings(self) -> Settings:
        """Resolved settings."""
        return self.services.settings

    async def sandbox(self, name: str = "name") -> Registration:
        """The sandbox an argument names: by name, id, or a unique prefix of either.

        Raises:
            SandboxNotFound: None. AmbiguousReference: More than one.
        """
        return await self.services.sandboxes.find(self.args.text(name))

    async def progress(self, words: str) -> None:
        """Tell what is being done."""
        self._steps += 1
        await self.client.progress(self._steps, harmless_line(words, limit=_PROGRESS_WIDTH))

    def telling(self) -> Callable[[str], None]:
        """`progress` for a service that tells without waiting."""
        return lambda words: self.later(self.progress(words))

    async def confirm(self, question: str, consequences: Sequence[str]) -> None:
        """Go on only if the caller said `confirm`, or the person behind it agrees.

        Raises:
            ConfirmationMissing: Neither; nothing was done.
        """
        if self.args.flag("confirm"):
            return
        losses = "; ".join(consequences)
        answer = await self.client.ask(f"{question}? This is lost: {losses}" if losses else f"{question}?")
        if answer:
            return
        words = "needs `confirm`" if answer is None else "was declined"
        raise ConfirmationMissing(
            f"{question}: {words}; nothing was done",
            hint="call again with confirm=true if that is what the person wants",
            details={"would_lose": list(consequences)},
        )
