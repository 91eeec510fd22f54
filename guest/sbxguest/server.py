"""The server process: HTTP on the sockets init listens on, jobs over init's link. Started by init only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

from sbxguest import (
    attach,
    clock,
    descriptors,
    filepool,
    files,
    hello,
    hooks,
    jobroutes,
    kernel,
    legacy,
    logroutes,
    portsroutes,
    shellroutes,
    stats,
    terminal,
    treeroutes,
    tunnel,
    wire,
)
from sbxguest.app import Route
from sbxguest.asgi import App
from sbxguest.guestlog import GuestLog
from sbxguest.httpsocket import HttpSocket
from sbxguest.initclient import InitClient, Kept
from sbxguest.jobs import JobTable
from sbxguest.runclock import RunClock
from sbxguest.shells import ShellTable
from sbxguest.state import Guest, GuestSettings, GuestState
from sbxguest.tunnel import TunnelTable

log = logging.getLogger(__name__)

_OOM_SCORE = -500
_KEEP_ALIVE_S = 75
_SOCKET_ROUTES = (*attach.SOCKET_ROUTES, *tunnel.SOCKET_ROUTES)


def main(init_fd: int, listen_fds: list[int]) -> None:
    """Serve on the sockets given until SIGTERM, or until init, at the other end of `init_fd`, is gone."""
    _log_to_stderr()
    # It logs every WebSocket with its query string.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    kernel.close_memory()
    kernel.set_oom_score(_OOM_SCORE)
    kernel.keep_freed_memory()
    init = InitClient(init_fd)
    kept = init.sync()
    try:
        settings = GuestSettings.from_env(kept.env)
    except ValueError as exc:
        sys.exit(f"sbxguest: {exc}")
    asyncio.run(_serve(settings, init, kept, [socket.socket(fileno=fd) for fd in listen_fds]))


def _log_to_stderr() -> None:
    """Each line begins with its moment, as init's do: the platform keeps no other."""
    line = "%(asctime)s.%(msecs)03dZ sbxguest: %(levelname)s %(name)s: %(message)s"
    form = logging.Formatter(line, "%Y-%m-%dT%H:%M:%S")
    form.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(form)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


async def _serve(settings: GuestSettings, init: InitClient, kept: Kept, sockets: list[socket.socket]) -> None:
    log_of_all = GuestLog.of(kept.named, init)
    saved = {name: descriptors.read_whole(fd) for name, fd in kept.named.items()}
    descriptors.close_all(kept.named.values())
    state = GuestState(settings, keep=lambda data: init.put("state", data), saved=saved.get("state", b""))
    clock = RunClock()
    jobs = JobTable(init, state, clock, log_of_all)
    shells = ShellTable(jobs, state, init)
    shells.adopt(saved)
    terminal.is_kernel_silent = settings.has_own_kernel
    loop = asyncio.get_running_loop()
    init.attach(loop)
    jobs.adopt(kept.jobs, kept.told)
    shells.start()
    _make_workdir(state)
    own_ports = {settings.port, settings.hook_port, *(sock.getsockname()[1] for sock in sockets)}
    guest = Guest(state, jobs, shells, TunnelTable(own_ports, clock), log_of_all)
    filepool.journal_of(guest)  # removes what a killed server left of its uploads
    servers = [_server(App(guest, _app_routes(), _SOCKET_ROUTES))]
    if len(sockets) > 1:
        servers.append(_server(App(guest, hooks.ROUTES)))
    init.on_lost = _stop
    async with asyncio.TaskGroup() as group:
        for server, sock in zip(servers, sockets, strict=True):
            group.create_task(server.serve(sockets=[sock]))


def _app_routes() -> tuple[Route, ...]:
    return (
        *hello.ROUTES,
        *jobroutes.ROUTES,
        *shellroutes.ROUTES,
        *files.ROUTES,
        *treeroutes.ROUTES,
        *stats.ROUTES,
        *clock.ROUTES,
        *logroutes.ROUTES,
        *portsroutes.ROUTES,
        *legacy.ROUTES,
    )


class _Server(uvicorn.Server):
    """Two of these share one process, and init decides when it ends: no signal handlers of their own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave SIGTERM at its default: there is nothing to save that init does not hold."""
        yield

    async def main_loop(self) -> None:
        """Wait for ever. uvicorn's own loop wakes ten times a second, and an idle sandbox must do nothing at all."""
        await asyncio.Event().wait()


def _server(app: App) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http=HttpSocket,
            # A peer's silence is no sign of its death while data is on its way to it; the streams have heartbeats.
            ws_ping_interval=None,
            ws_ping_timeout=None,
            ws_per_message_deflate=False,
            ws_max_size=wire.MAX_MESSAGE_BYTES,
            ws=_websocket_protocol,  # type: ignore[arg-type]  # a factory, so that websockets is imported on first use
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
    )


def _websocket_protocol(**kwargs: Any) -> asyncio.Protocol:
    from sbxguest.directsocket import DirectSocket

    return DirectSocket(**kwargs)


def _stop() -> None:
    """Init is gone, and the sandbox with it: end at once, whoever is connected. Nothing is held that could be saved."""
    log.warning("init is gone; stopping")
    os._exit(1)


def _make_workdir(state: GuestState) -> None:
    """Every image has the work folder; where one does not, make it for the job user, if possible."""
    settings = state.settings
    try:
        os.makedirs(state.workdir)  # noqa: PTH103 - the mode and errors of the plain call
        if settings.job_uid is not None and os.geteuid() == 0:
            os.chown(state.workdir, settings.job_uid, settings.job_gid or 0)
    except OSError:
        return
