"""The process that serves one client: how it begins, and that it always ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from sbxtui.mcp_server.options import Options
from sbxtui.settings import Settings

if TYPE_CHECKING:
    from sbxtui.mcp_server.guard import Wire

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PARENT_EVERY_S = 0.5
# Work that was cut has this long to take back what it began; then the process ends whatever still runs in it.
_GRACE_S = 0.8


def serve_stdio(settings: Settings, options: Options) -> int:
    """Serve the client at standard input and output until it leaves, a signal comes or our parent dies.

    Returns:
        0, or 128+n when signal n ended it.
    """
    # Before anything large is imported: what that prints must not get to the client.
    from sbxtui.mcp_server.guard import take_wire

    wire = take_wire()
    # What is imported until the first answer stays: looking through it for what does not would only delay that.
    gc.disable()
    ended = _Ended()
    try:
        return asyncio.run(_serve(settings, options, wire, ended))
    finally:
        ended.cancel()


class _Ended:
    """Ends the process when its own end takes too long."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def start(self, code: int) -> None:
        """From now on it ends."""
        if self._timer is None:
            self._timer = threading.Timer(_GRACE_S, os._exit, (code,))
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """It ended by itself."""
        if self._timer is not None:
            self._timer.cancel()


async def _serve(settings: Settings, options: Options, wire: Wire, ended: _Ended) -> int:
    from sbxtui.mcp_server.face import Face
    from sbxtui.mcp_server.server import build_server
    from sbxtui.mcp_server.stdio import stdio_streams

    code = 0
    face = Face(settings, options)
    try:
        async with _until_told() as told, stdio_streams(wire) as (inbound, outbound):
            server = build_server(face)
            gc.freeze()
            gc.enable()
            serving = asyncio.ensure_future(server.run(inbound, outbound, server.create_initialization_options()))
            cut_off = asyncio.ensure_future(face.cut_off.wait())
            await asyncio.wait((serving, told, cut_off), return_when=asyncio.FIRST_COMPLETED)
            cut_off.cancel()
            if told.done():
                code = told.result()
            elif serving.done() and (failure := serving.exception()) is not None:
                log.error("serving failed", exc_info=failure)
                code = 1
            ended.start(code)
            serving.cancel()
            # Cut like this, the library raises what nobody need know.
            await asyncio.gather(serving, return_exceptions=True)
    finally:
        ended.start(code)
        await face.close()
    return code


@contextlib.asynccontextmanager
async def _until_told() -> AsyncIterator[asyncio.Future[int]]:
    """Done when a signal asks for the end, or our parent has died, with the exit code to end with."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def tell(code: int) -> None:
        if not told.done():
            told.set_result(code)

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, tell, 128 + number)
    watching = asyncio.ensure_future(_watch_parent(tell))
    try:
        yield told
    finally:
        watching.cancel()
        told.cancel()


async def _watch_parent(tell: Callable[[int], None]) -> None:
    """Call `tell` when our parent has died: whoever else holds the pipe does not know of us."""
    parent = os.getppid()
    while parent > 1:
        await asyncio.sleep(_PARENT_EVERY_S)
        if os.getppid() != parent:
            tell(0)
            return
